"""Do our corruptions hurt a classifier as much as the published generator's?

A CIFAR-10 ResNet-20 is evaluated on the first 2,000 test images under all 19 x 5 corruptions and compared with its
accuracies under the reference generator (below, in percent). Deterministic corruptions must agree to 0.5 points per
cell; for random ones sampling allows 3 points per cell, 1.5 per corruption, 0.7 over all.

    python examples/corruption_fidelity.py --assets ASSETS --cifar10 CIFAR10 --frost_textures FOLDER

ASSETS holds cifar10_resnet20.safetensors, CIFAR10 a copy of the dataset that `datasets` can load. Writes
corruption_fidelity.json and .md to model_cards.
"""

import argparse
import json
from pathlib import Path

import torch
from datasets import load_dataset
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from macs_hf.corruptions import CORRUPTIONS, STANDARD_15, STOCHASTIC
from macs_hf.evaluation import ByteImages, evaluate_corruptions, forward_of
from macs_hf.pixels import PixelStats
from macs_hf.report.report import CorruptionTable, to_plain


SAMPLES = 2000
REFERENCE_CLEAN = 91.6
REFERENCE = {
    "gaussian_noise": (73.8, 53.3, 35.2, 29.2, 25.1),
    "shot_noise": (81.3, 71.8, 48.9, 41.7, 32.0),
    "impulse_noise": (78.3, 66.1, 55.2, 35.9, 23.8),
    "defocus_blur": (92.0, 90.3, 83.5, 74.7, 59.4),
    "glass_blur": (48.0, 50.4, 52.4, 41.6, 43.9),
    "motion_blur": (86.4, 77.3, 70.2, 69.0, 60.7),
    "zoom_blur": (82.6, 79.5, 74.8, 68.8, 60.7),
    "snow": (85.4, 72.5, 76.3, 73.9, 70.0),
    "frost": (86.4, 79.0, 68.5, 66.6, 53.9),
    "fog": (92.6, 91.1, 88.0, 84.8, 66.0),
    "brightness": (91.9, 91.6, 91.0, 89.8, 86.7),
    "contrast": (91.9, 86.1, 80.0, 64.5, 26.4),
    "elastic_transform": (86.1, 86.0, 81.3, 74.2, 70.3),
    "pixelate": (88.3, 81.6, 75.0, 56.2, 39.7),
    "jpeg_compression": (83.3, 77.8, 76.4, 73.7, 70.7),
    "speckle_noise": (82.0, 68.6, 60.8, 44.8, 34.8),
    "gaussian_blur": (91.9, 83.5, 73.7, 60.7, 41.0),
    "spatter": (88.7, 82.4, 76.8, 80.0, 69.8),
    "saturate": (89.7, 86.9, 90.6, 89.2, 85.4),
}
TOLERANCE = {"deterministic cell": 0.5, "stochastic cell": 3.0, "stochastic corruption": 1.5, "overall": 0.7}
# The reference is printed to a tenth of a point, so a difference is known to half of that.
ROUNDING = 0.05


class Block(nn.Module):
    """Two 3 x 3 convolutions; where the shape changes, the shortcut takes every second pixel and pads channels."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if x.shape != y.shape:
            extra = (y.shape[1] - x.shape[1]) // 2
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, extra, extra))
        return F.relu(x + y)


class ResNet20(nn.Module):
    """He et al. 2016, for 32 x 32 images."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*(Block(16, 16, 1) for _ in range(3)))
        self.layer2 = nn.Sequential(Block(16, 32, 2), Block(32, 32, 1), Block(32, 32, 1))
        self.layer3 = nn.Sequential(Block(32, 64, 2), Block(64, 64, 1), Block(64, 64, 1))
        self.linear = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        return self.linear(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


def compare(table: CorruptionTable) -> dict:
    """Accuracies in percent beside the reference's, the differences, and whether they are within the tolerances."""
    rows = {}
    for name in CORRUPTIONS:
        ours = [100 * cell.accuracy for cell in table.cells[name].values()]
        differences = [a - b for a, b in zip(ours, REFERENCE[name], strict=True)]
        mean = sum(differences) / 5
        kind = "stochastic" if name in STOCHASTIC else "deterministic"
        within = max(map(abs, differences)) <= TOLERANCE[f"{kind} cell"] + ROUNDING
        if kind == "stochastic":
            within = within and abs(mean) <= TOLERANCE["stochastic corruption"] + ROUNDING
        rows[name] = {
            "kind": kind,
            "ours": [round(value, 2) for value in ours],
            "reference": list(REFERENCE[name]),
            "largest_difference": round(max(differences, key=abs), 2),
            "mean_difference": round(mean, 2),
            "within": within,
        }
    overall = sum(row["mean_difference"] for row in rows.values()) / len(rows)
    return {
        "rows": rows,
        "clean": {"ours": round(100 * table.clean.accuracy, 2), "reference": REFERENCE_CLEAN},
        "mean15": round(100 * table.mean(STANDARD_15), 2),
        "mean19": round(100 * table.mean(CORRUPTIONS), 2),
        "overall_difference": round(overall, 2),
        "within": all(row["within"] for row in rows.values()) and abs(overall) <= TOLERANCE["overall"] + ROUNDING,
    }


def render(report: dict) -> str:
    """The comparison as Markdown."""
    means = {
        k: sum(sum(REFERENCE[name]) / 5 for name in names) / len(names)
        for k, names in (("mean15", CORRUPTIONS[:15]), ("mean19", CORRUPTIONS))
    }
    lines = [
        "# Fidelity of the corruptions",
        "",
        f"Accuracy (%) of a CIFAR-10 ResNet-20 on the first {report['n']:,} test images, `cifar` parameters, with our "
        "corruptions and, in brackets, with the reference generator of CIFAR-10-C. Frost textures: "
        f"{report['frost']}. Written by `examples/corruption_fidelity.py`.",
        "",
        "| corruption | kind | 1 | 2 | 3 | 4 | 5 | largest difference | mean difference | within tolerance |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    rows = report["rows"] | {f"{name} (not counted)": row for name, row in report["stand_in"].items()}
    for name, row in rows.items():
        pairs = [f"{a:.1f} ({b:.1f})" for a, b in zip(row["ours"], row["reference"], strict=True)]
        differences = (f"{row[key]:+.2f}" for key in ("largest_difference", "mean_difference"))
        values = (name, row["kind"], *pairs, *differences, "yes" if row["within"] else "no")
        lines.append("| " + " | ".join(values) + " |")
    clean = report["clean"]
    lines += [
        "",
        f"Clean {clean['ours']:.1f} ({clean['reference']:.1f}), "
        f"mean15 {report['mean15']:.2f} ({means['mean15']:.2f}), "
        f"mean19 {report['mean19']:.2f} ({means['mean19']:.2f}); "
        f"mean difference over all cells {report['overall_difference']:+.2f}.",
        "",
        "Tolerances in points: deterministic 0.5 per cell; stochastic 3 per cell, 1.5 per corruption; 0.7 over all. "
        f"All within: {'yes' if report['within'] else 'no'}.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--assets", type=Path, required=True, help="folder with cifar10_resnet20.safetensors")
    parser.add_argument("--cifar10", required=True, help="CIFAR-10 for datasets.load_dataset: a folder or a Hub id")
    parser.add_argument("--frost_textures", help="folder with the original frost textures")
    parser.add_argument("--output", type=Path, default=Path("model_cards"), help="where the two files go")
    args = parser.parse_args()
    torch.set_num_threads(1)

    model = ResNet20().eval()
    model.load_state_dict(load_file(args.assets / "cifar10_resnet20.safetensors"))
    forward = forward_of(model, PixelStats((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    data = ByteImages(load_dataset(args.cifar10, split=f"test[:{SAMPLES}]"), ("img", "label"))
    options = {"params": "cifar", "design": "crossed", "batch_size": 500}
    table = evaluate_corruptions(forward, data, frost_textures=args.frost_textures, **options)
    report = {"n": table.n, "frost": table.frost, "tolerance": TOLERANCE} | compare(table)
    stand_in = evaluate_corruptions(forward, data, corruptions=("frost",), frost_textures="procedural", **options)
    both = CorruptionTable(**vars(table) | {"cells": table.cells | stand_in.cells})
    report["stand_in"] = {"frost, procedural stand-in": compare(both)["rows"]["frost"]}
    report["table"] = to_plain(table)
    args.output.mkdir(exist_ok=True)
    (args.output / "corruption_fidelity.json").write_text(json.dumps(report, indent=1) + "\n")
    (args.output / "corruption_fidelity.md").write_text(render(report))
    print(render(report))


if __name__ == "__main__":
    main()
