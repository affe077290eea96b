"""Load a classifier from the Hub or a folder, and answer only when it is sure enough.

python examples/use_model.py user/model cat.jpg dog.jpg --accuracy 0.95
"""

import argparse

from transformers import pipeline

from macs_hf.calibration import stored_abstention_threshold


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model", help="Hub id or folder")
parser.add_argument("images", nargs="+", help="files or addresses")
parser.add_argument("--accuracy", type=float, default=0.95, help="share of answers that should be right")
options = parser.parse_args()

classifier = pipeline("image-classification", model=options.model)
config = classifier.model.config
threshold = stored_abstention_threshold(config, options.accuracy)
if threshold is None:
    print(f"No promise: the model has no threshold for {options.accuracy:.1%} right answers. All images are answered.")
else:
    print(
        f"Answering from a probability of {threshold:.3f} on: at least {options.accuracy:.1%} of the answers are "
        f"right for images like the held-out ones ({1 - config.abstention_thresholds['delta']:.0%} certainty)."
    )

for image in options.images:
    best = classifier(image, top_k=1)[0]
    answer = best["label"] if threshold is None or best["score"] >= threshold else "not sure enough"
    print(f"{image}: {answer} ({best['score']:.3f})")
