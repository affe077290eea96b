"""Load a classifier from the Hub or a folder, and answer only when it is sure enough.

python examples/use_model.py user/model cat.jpg dog.jpg --accuracy 0.95
"""

import argparse
from pathlib import Path

from huggingface_hub import snapshot_download
from transformers import pipeline

from macs_hf.calibration.selection import confidence_threshold
from macs_hf.publishing.folder import saved_report


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model", help="Hub id or folder")
parser.add_argument("images", nargs="+", help="files or addresses")
parser.add_argument("--accuracy", type=float, default=0.95, help="share of answers that should be right")
options = parser.parse_args()

folder = options.model if Path(options.model).exists() else snapshot_download(options.model)
report = saved_report(folder)
if report is None:
    raise SystemExit(f"{options.model} has no report beside it, so nothing is known about its confidence.")
choice = confidence_threshold(report, options.accuracy)
print(f"Answering above {choice.threshold:.3f}: {choice.accuracy:.1%} right, {choice.coverage:.1%} of test answered.")

classifier = pipeline("image-classification", model=str(folder))
for image in options.images:
    best = classifier(image, top_k=1)[0]
    answer = best["label"] if best["score"] > choice.threshold else "not sure enough"
    print(f"{image}: {answer} ({best['score']:.3f})")
