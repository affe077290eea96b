"""Write the parts of README.md and docs/ that come from code and results; `--check` only says if they are current.

python examples/render_docs.py
"""

import csv
import dataclasses
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reproduction.aggregate import RECORD_FILE
from reproduction.digest import claims_table, main_table
from reproduction.grid import load_grid
from reproduction.quantities import METRICS

import macs_hf
from macs_hf.report import EvaluationReport
from macs_hf.report.corruption_names import STANDARD_15
from macs_hf.report.evaluation import Measurement
from macs_hf.report.run import REPORT_FILE


ROOT = Path(__file__).parent.parent
CARDS = ROOT / "model_cards"
HEADLINE = ("accuracy", "nll", "ece", "nll_after", "ece_after", "mean15")
DATA = {
    "train_32_later_pass": "training at 32 pixels, from the second pass on, over transformers' example",
    "train_32_first_pass": "the same, first pass",
    "train_photo": "training, 500x375 JPEG to 224 pixels, over transformers' example",
    "train_12_megapixels": "training, 12-megapixel JPEG to 224 pixels, over transformers' example",
    "evaluate_32_first_pass": "evaluation at 32 pixels, first pass, over one image at a time",
    "evaluate_32_later_pass": "the same, from the second pass on",
    "augmix_32": "AugMix views at 32 pixels, over torchvision's",
}
MORE = {
    "Under corruption and after the temperature, MaCS is better calibrated than cross-entropy.": [
        ("macs", "ce", "corrupted_ece"),
        ("macs", "ce", "corrupted_nll"),
    ],
    "Under corruption it is more accurate than label smoothing.": [("macs", "label_smoothing", "mean15")],
    "On clean images it is worse than MixUp in likelihood, after the temperature; under corruption it is better.": [
        ("macs", "mixup", "nll_after"),
        ("macs", "mixup", "corrupted_nll"),
    ],
    "After the temperature, the margin term adds nothing to consistency that these runs could show.": [
        ("macs", "consistency_only", "nll_after"),
        ("macs", "consistency_only", "corrupted_nll"),
        ("macs", "consistency_only", "mean15"),
    ],
    "What the margin term does is lower the confidence.": [
        ("macs", "ce", "confidence"),
        ("macs", "consistency_only", "confidence"),
    ],
    "Logits shrink, where the paper says that they grow.": [("macs", "ce", "logit_norm")],
}
TIMED = {
    "macs": "`macs`",
    "macs_quarter": "`macs`, a quarter of the views",
    "focal": "`focal`",
    "label_smoothing": "`label_smoothing`",
    "mixup": "`mixup`",
    "augmix": "`augmix`",
    "ce": "`ce`",
}


def methods() -> str:
    return ", ".join(f"`{name}`" for name in macs_hf.METHODS) + "."


def arguments() -> str:
    """One row per field of the objective, from its own help."""
    rows = [
        f"| `{field.name}` | `{field.default}` | {field.metadata['help']} |".replace("||", "\\|\\|")
        for field in dataclasses.fields(macs_hf.Objective)
    ]
    return "\n".join(["| argument | default | meaning |", "| --- | --- | --- |", *rows])


def headline() -> str:
    """Picture and short table of the few-image runs."""
    grid = load_grid(ROOT / "examples" / "configs" / "few_images.yaml")
    rows = main_table(grid, "core", CARDS / "few_images", HEADLINE, seeds=2).splitlines()
    text = (
        "A small network from scratch on 2,000 CIFAR-10 images, five seeds, all 10,000 test images; `after T` is with "
        "the folded temperature ([docs/study.md](docs/study.md)):"
    )
    picture = "![Accuracy, calibration and robustness of each method](model_cards/few_images/methods.png)"
    return "\n".join([text, "", *rows, "", picture])


def findings() -> str:
    """The decided and undecided differences between MaCS and the others, as a list."""
    with (CARDS / "few_images" / "claims.csv").open(newline="", encoding="utf-8") as file:
        claims = [row for row in csv.DictReader(file) if row["model"] == "small" and int(row["n"]) > 2]
    lines = []
    for row in claims:
        metric = METRICS[row["metric"]]
        numbers = (float(row[name]) for name in ("difference", "low", "high"))
        value, low, high = (f"{number:+.{metric.decimals}f}" for number in numbers)
        lines.append(
            f"- {metric.title}, `{row['pair']}`: {value} [{low}, {high}]; {row['claim']}: **{row['outcome']}**"
        )
    return "\n".join(lines)


def more() -> str:
    """What the rows say beyond the claims, each sentence with the differences that it rests on."""
    with (CARDS / "few_images" / "comparisons.csv").open(newline="", encoding="utf-8") as file:
        found = {
            (row["setting"], row["minus"], row["metric"]): row
            for row in csv.DictReader(file)
            if row["table"] == "more"
        }
    lines = []
    for sentence, pairs in MORE.items():
        shown = []
        for pair in pairs:
            row, metric = found[pair], METRICS[pair[2]]
            numbers = (f"{float(row[name]):+.{metric.decimals}f}" for name in ("value", "low", "high"))
            value, low, high = numbers
            shown.append(f"{metric.title}, `{pair[0]} minus {pair[1]}`: {value} [{low}, {high}]")
        lines.append(f"- {sentence} {'; '.join(shown)}.")
    return "\n".join(lines)


def few_images() -> str:
    """The runs with few images in short, with their figure and claims."""
    folder = CARDS / "few_images"
    grid = load_grid(ROOT / "examples" / "configs" / "few_images.yaml")
    runs = len(list(folder.glob(f"*/{RECORD_FILE}")))
    settings = grid.models["small"]
    text = (
        f"{grid.tables['core'].title}, {settings['num_train_epochs']} epochs; mean ± standard deviation over seeds. "
        f"Corruptions on {grid.settings['corruption_samples']} fixed test images, everything else on all 10,000:"
    )
    links = (
        f"All {runs} runs: [tables with intervals](../model_cards/few_images/tables.md), "
        "[reports](../model_cards/few_images), [settings](../examples/configs/few_images.yaml)."
    )
    picture = "![Accuracy, calibration and robustness of each method](../model_cards/few_images/methods.png)"
    return "\n\n".join([text, main_table(grid, "core", folder), picture, claims_table(folder), links])


def demo() -> str:
    """What `make demo` gives, and the same with plain cross-entropy."""
    header = "| method | accuracy | ECE | NLL | ECE, with temperature | NLL, with temperature | 15 corruptions |"
    rows = [header, "| --- |" + " --- |" * 6]
    for method in ("ce", "macs"):
        report = EvaluationReport.load(CARDS / f"digits-tiny-{method}" / REPORT_FILE)
        cells = [
            percent(report.before, "accuracy"),
            percent(report.before, "ece"),
            f"{report.before.metrics['nll'].value:.4f}",
            percent(report.after, "ece"),
            f"{report.after.metrics['nll'].value:.4f}",
            f"{100 * report.corruptions.mean(STANDARD_15):.1f} %",
        ]
        rows.append(f"| `{method}` | " + " | ".join(cells) + " |")
    text = (
        f"`make demo` on the {report.n} test digits, one seed ([cards](../model_cards)). The task is easy and the "
        "test set small: it shows what a run reports, not which method is better."
    )
    return "\n".join([text, "", *rows])


def percent(part: Measurement, name: str) -> str:
    metric = part.metrics[name]
    return f"{100 * metric.value:.2f} % [{100 * metric.low:.2f}, {100 * metric.high:.2f}]"


def cost() -> str:
    return "\n\n".join(part() for part in (training_cost, data, designs, speed, demo))


def training_cost() -> str:
    """Step time and memory of each method over plain Trainer, as measured."""
    data = load("training")["models"]
    rows = ["| model | " + " | ".join(TIMED.values()) + " |", "| --- |" + " --- |" * len(TIMED)]
    for name, model in data.items():
        cells = (f"{model['time_ratio'][key]:.2f} / {model['memory_ratio'][key]:.2f}" for key in TIMED)
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    text = (
        "Time of a training step / peak memory, over plain `Trainer` with cross-entropy, batches of 16 images of 64 "
        "pixels, one CPU thread ([training.json](../model_cards/benchmarks/training.json)):"
    )
    return "\n".join([text, "", *rows])


def data() -> str:
    """Images per second of the data path over the usual ways, as measured."""
    found = {name: value for part in load("data")["scenarios"].values() for name, value in part["ratio"].items()}
    ranges = {
        name: value for part in load("data")["scenarios"].values() for name, value in part["ratio_range"].items()
    }
    memory = load("data")["memory"]
    rows = ["| images through torch's `DataLoader`, per CPU second | times faster [smallest, largest of 15 rounds] |"]
    rows += ["| --- | --- |"]
    for name, text in DATA.items():
        low, high = ranges[name]
        rows.append(f"| {text} | {found[name]:.1f} [{low:.1f}, {high:.1f}] |")
    text = (
        "The data path of `ImageDataset`, on one thread ([data.json](../model_cards/benchmarks/data.json)). Decoded "
        f"pixels of {memory['images']:,} images of 32 pixels take {memory['cached_pixels_megabytes']:.0f} MB:"
    )
    return "\n".join([text, "", *rows])


def designs() -> str:
    """What the spread design gains, as measured."""
    found = load("spread_design")
    rows = ["| standard error, points | crossed, 500 images | spread, 9,500 images |", "| --- | --- | --- |"]
    for name, title in (
        ("accuracy, mean15", "`mean15`"),
        ("accuracy, mean15, paired difference", "difference of two models"),
    ):
        cells = (f"{found[design][name]['standard_error_over_draws']:.2f}" for design in ("crossed", "spread"))
        rows.append(f"| {title} | " + " | ".join(cells) + " |")
    text = (
        "The two designs of the corruption benchmark at equal forward passes, on a "
        f"{found['model'].partition(';')[0]}, over {found['draws']:,} drawn test sets "
        "([spread_design.json](../model_cards/benchmarks/spread_design.json)):"
    )
    return "\n".join([text, "", *rows])


def speed() -> str:
    corruptions, metrics, evaluation = load("corruptions"), load("metrics"), load("evaluation")
    full = corruptions["32_full_benchmark"]
    (benchmark,) = evaluation["corruptions"].values()
    slower = metrics["stream"]["times_slower_than_ours"]
    lines = [
        f"- all 19 x 5 corruptions of 10,000 images of 32 pixels: {full['seconds']:.0f} s on one thread, "
        f"{full['times_faster']:.0f} times faster than the reference generator; at 224 pixels "
        f"{corruptions['224']['times_faster_on_the_mean_time']:.0f} times, "
        f"{100 * corruptions['224_beside_a_network']['share']:.1f} % of a ResNet-50 forward pass",
        f"- ECE of 1,000,000 x 100 logits: {slower['torchmetrics']:.1f} times faster than torchmetrics, "
        f"{slower['netcal']:.1f} times faster than netcal",
        f"- evaluation with all default metrics: {evaluation['worst_ratio']:.2f} times the bare forward passes; with "
        f"corruptions, EfficientNet-Lite0 at 64 pixels: {benchmark['ratio']:.2f} times",
    ]
    return "\n".join(["Speed, from [model_cards/benchmarks](../model_cards/benchmarks):", "", *lines])


def load(name: str) -> dict[str, Any]:
    return json.loads((CARDS / "benchmarks" / f"{name}.json").read_text())


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"headline": headline, "methods": methods},
    "docs/training.md": {"arguments": arguments},
    "docs/study.md": {"findings": findings, "more": more, "few_images": few_images},
    "docs/cost.md": {"cost": cost},
}


def rendered(page: str, text: str) -> str:
    for name, make in PAGES[page].items():
        pattern = re.compile(rf"<!-- {name} -->\n.*?<!-- /{name} -->\n", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"{page} has no marks <!-- {name} --> and <!-- /{name} -->.")
        block = f"<!-- {name} -->\n\n{make()}\n\n<!-- /{name} -->\n"
        text = pattern.sub(lambda _, block=block: block, text, count=1)
    return text


if __name__ == "__main__":
    stale = []
    for page in PAGES:
        before = (ROOT / page).read_text()
        after = rendered(page, before)
        if before != after:
            stale.append(page)
            if "--check" not in sys.argv:
                (ROOT / page).write_text(after)
    print("written:" if "--check" not in sys.argv else "not current:", *(stale or ["none"]))
    sys.exit("--check" in sys.argv and bool(stale))
