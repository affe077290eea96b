"""Load a calibrated classifier from the Hub or a folder, and answer only when it is sure enough.

python examples/use_model.py user/model cat.jpg dog.jpg --accuracy 0.95
"""

import argparse

from transformers import pipeline

from macs_hf.calibration import stored_abstention_threshold


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model", help="Hub id or folder")
parser.add_argument("images", nargs="+", help="files or URLs")
parser.add_argument("--accuracy", type=float, default=0.95, help="share of answers that should be right")
options = parser.parse_args()
if not 0 < options.accuracy < 1:
    parser.error(f"--accuracy {options.accuracy:g} must lie between 0 and 1, such as 0.95")

classifier = pipeline("image-classification", model=options.model)
config = classifier.model.config
threshold = stored_abstention_threshold(config, options.accuracy)
if threshold is None:
    print(
        f"No guarantee: the model has no threshold for {100 * options.accuracy:g} % right answers. It always answers."
    )
else:
    stored = config.abstention_thresholds
    # The guarantee is approximate if the held-out images also chose the checkpoint.
    share = f"{'at least' if stored.get('exact', True) else 'about'} {100 * options.accuracy:g} %"
    answering = f"Answering if the probability is at least {threshold:.6g}" if threshold > 0 else "Answering always"
    print(
        f"{answering}: {share} of the answers are right for images like the held-out ones "
        f"({1 - stored['delta']:.0%} certainty). For other images nothing is guaranteed."
    )

for image in options.images:
    best = classifier(image, top_k=1)[0]
    answer = best["label"] if threshold is None or best["score"] >= threshold else "not sure enough"
    print(f"{image}: {answer} ({best['score']:.3f})")
