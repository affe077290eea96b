"""How fast exported files are over PyTorch, printed as JSON.

    macs-hf train ... --output_dir run
    macs-hf export run --output_dir exported --int8 --dataset ...
    python examples/benchmarks/exporting.py run exported --description "what it is" --output exporting.json

The three run in turn, in one process, on random images; ratios are medians over rounds.
"""

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from side_by_side import publish, ratios, take_turns
from transformers import AutoModelForImageClassification

from macs_hf.exporting import ExportReport, OnnxClassifier


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("exported", type=Path)
    parser.add_argument("--description", required=True)
    parser.add_argument("--device", default="one CPU thread", help="what it is measured on, in words")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def repeated(classify: Callable[[np.ndarray], object], images: np.ndarray, batches: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(batches):
            classify(images)

    return run


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    height, width = ExportReport.load(options.exported).image_size
    images = np.random.default_rng(0).normal(size=(options.batch_size, 3, height, width)).astype(np.float32)
    model = AutoModelForImageClassification.from_pretrained(options.model).eval()

    @torch.inference_mode()
    def pytorch(batch: np.ndarray) -> torch.Tensor:
        return model(pixel_values=torch.from_numpy(batch)).logits

    classifiers = {
        "PyTorch": pytorch,
        "float32": OnnxClassifier(options.exported / "onnx/model.onnx"),
        "int8": OnnxClassifier(options.exported / "onnx/model_quantized.onnx"),
    }
    contestants = {name: repeated(classify, images, options.batches) for name, classify in classifiers.items()}
    seconds = take_turns(contestants, options.rounds)
    count = options.batch_size * options.batches
    faster = {name: ratios(seconds["PyTorch"], seconds[name]) for name in ("float32", "int8")}
    result = {
        "description": options.description,
        "device": options.device,
        "batch_size": options.batch_size,
        "image_size": [height, width],
        "images_per_second": {name: round(count / statistics.median(found), 1) for name, found in seconds.items()},
        "times_faster_than_pytorch": {name: round(statistics.median(found), 2) for name, found in faster.items()},
        "range": {name: [round(min(found), 2), round(max(found), 2)] for name, found in faster.items()},
        "megabytes": {
            name: round((options.exported / file).stat().st_size / 1e6, 1)
            for name, file in (("float32", "onnx/model.onnx"), ("int8", "onnx/model_quantized.onnx"))
        },
        "versions": {"torch": torch.__version__, "onnxruntime": onnxruntime.__version__},
    }
    publish(result, options.output)


if __name__ == "__main__":
    main()
