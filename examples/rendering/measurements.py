"""What things cost and how fast they are, from model_cards."""

import json
import re
from pathlib import Path
from typing import Any

from macs_hf.exporting import ExportReport
from macs_hf.exporting.card import temperature_sentence
from macs_hf.report import EvaluationReport
from macs_hf.report.corruption_names import STANDARD_15
from macs_hf.report.evaluation import Measurement
from macs_hf.report.run import REPORT_FILE


ROOT = Path(__file__).parents[2]
CARDS = ROOT / "model_cards"
DATA = {
    "train_32_later_pass": "training at 32 pixels, from the second pass on, compared with transformers' example",
    "train_32_first_pass": "the same, first pass",
    "train_photo": "training, 500x375 JPEG to 224 pixels, compared with transformers' example",
    "train_12_megapixels": "training, 12-megapixel JPEG to 224 pixels, compared with transformers' example",
    "evaluate_32_first_pass": "evaluation at 32 pixels, first pass, compared with one image at a time",
    "evaluate_32_later_pass": "the same, from the second pass on",
    "augmix_32": "AugMix views at 32 pixels, compared with torchvision's",
}
TIMED = {
    "macs": "`macs`",
    "macs_quarter": "`macs`, a quarter of the views",
    "recommended": "`recommended`",
    "focal": "`focal`",
    "label_smoothing": "`label_smoothing`",
    "mixup": "`mixup`",
    "augmix": "`augmix`",
    "ce": "`ce`",
    "ce_ema": "`ce`, averaged weights",
}
# The network and the batches that README speaks of: those of the study.
CONTROL = "Trainer_again"


def demo() -> str:
    """What `macs-hf train` gives on the digits, and the same with plain cross-entropy."""
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
        f"Results of `macs-hf train` on {report.n} test digits, one seed ([cards](../model_cards)). The task is easy "
        "and the test set small, so this shows what a run reports, not which method is better:"
    )
    return "\n".join([text, "", *rows])


def percent(part: Measurement, name: str) -> str:
    metric = part.metrics[name]
    return f"{100 * metric.value:.2f} % [{100 * metric.low:.2f}, {100 * metric.high:.2f}]"


def cost() -> str:
    return "\n\n".join(part() for part in (training_cost, kept_memory, data, smaller_jpegs, designs, speed, demo))


def training_cost() -> str:
    """Step time and memory of each method over plain Trainer, as measured."""
    found = load("training")
    titles = ("model", "batch", "rounds", *TIMED.values())
    rows = ["| " + " | ".join(titles) + " |", "| --- |" + " --- |" * (len(titles) - 1)]
    keys = {name: name.split(", batch ") for name in found["models"]}
    networks = [network for network, _ in keys.values()]
    order = sorted(keys, key=lambda name: (networks.index(keys[name][0]), int(keys[name][1])))
    for name in order:
        model = found["models"][name]
        times, memory = model["time_ratio"], model["memory_ratio"]
        cells = (f"{times[key]:.2f} / {memory[key]:.2f}" if key in times else "-" for key in TIMED)
        rows.append(f"| {name.replace(', batch ', ' | ')} | {model['rounds']} | " + " | ".join(cells) + " |")
    noise = max(abs(model["time_ratio"][CONTROL] - 1) for model in found["models"].values())
    size, threads = found["settings"]["image_size"], found["settings"]["threads"]
    text = (
        "Time of a training step / peak memory, as multiples of those of plain `Trainer` with cross-entropy. Images "
        f"have {size} pixels; CPU threads: {threads} ([training.json](../model_cards/benchmarks/training.json)). "
        f"Methods take turns step by step. A second plain `Trainer` differed from the first by up to {noise:.2f}, so "
        "smaller differences mean nothing:"
    )
    return "\n".join([text, "", *rows])


def kept_memory() -> str:
    """What it is worth that commands keep freed memory, as measured."""
    found = load("memory")
    lines = [
        f"- {name}: evaluation {1 / model['evaluation']['ratio']:.2f} times as fast, training "
        f"{1 / model['training']['ratio']:.2f} times, with {model['megabytes']['ratio']:.2f} times the memory"
        for name, model in found["models"].items()
    ]
    text = (
        "On a CPU, the commands tell the C library of Linux to keep freed memory for the next tensor, instead of "
        f"returning it to the system. One thread, {found['image_size']} pixels, batches of {found['train_batch']} in "
        f"training and {found['eval_batch']} in evaluation ([memory.json](../model_cards/benchmarks/memory.json)):"
    )
    own = (
        "Results do not change. For a script of your own, set `MALLOC_MMAP_MAX_=0`, "
        "`MALLOC_TRIM_THRESHOLD_=17179869184` and `MALLOC_TOP_PAD_=67108864` in its environment."
    )
    return "\n".join([text, "", *lines, "", own])


def sharding() -> str:
    """Step time and memory of FSDP2 over DDP, as measured."""
    found = load("sharding")
    titles = ("parameters", "CPU time of a step [range]", "MB kept per process", "peak in a step", "peak at the start")
    rows = ["| model | " + " | ".join(titles) + " |", "| --- |" + " --- |" * len(titles)]
    for name, model in found["models"].items():
        memory, ratio, (low, high) = model["megabytes"], model["fsdp2_over_ddp"], model["range"]["cpu"]
        cells = (
            f"{memory['ddp'][key]:,.0f} → {memory['fsdp2'][key]:,.0f}, {ratio[key]:.2f} times"
            for key in ("held", "peak", "start")
        )
        rows.append(
            f"| {name} | {model['parameters'] / 1e6:.1f} million | {ratio['cpu']:.2f} times [{low:.2f}, {high:.2f}] | "
            + " | ".join(cells)
            + " |"
        )
    text = (
        f"FSDP2 compared with DDP on the same model: {found['setting']}, batches of {found['settings']['batch_size']} "
        "([sharding.json](../model_cards/benchmarks/sharding.json)). Memory: DDP → FSDP2. On GPUs, times will differ:"
    )
    return "\n".join([text, "", *rows])


def data() -> str:
    """Images per second of the data path over the usual ways, as measured."""
    found = {name: value for part in load("data")["scenarios"].values() for name, value in part["ratio"].items()}
    ranges = {
        name: value for part in load("data")["scenarios"].values() for name, value in part["ratio_range"].items()
    }
    memory = load("data")["memory"]
    rounds = load("data")["settings"]["rounds"]
    rows = [f"| what is read | times faster [smallest, largest of {rounds} rounds] |"]
    rows += ["| --- | --- |"]
    for name, text in DATA.items():
        low, high = ranges[name]
        rows.append(f"| {text} | {found[name]:.1f} [{low:.1f}, {high:.1f}] |")
    text = (
        "Images per CPU second from an `ImageDataset` in torch's `DataLoader`, on one thread, compared with other "
        "ways ([data.json](../model_cards/benchmarks/data.json)). Small images are kept decoded in memory: "
        f"{memory['images']:,} images of 32 pixels take {memory['cached_pixels_megabytes']:.0f} MB:"
    )
    return "\n".join([text, "", *rows])


def smaller_jpegs() -> str:
    """What decoding JPEGs at a smaller scale changes, as measured."""
    found = load("jpeg_draft")
    settings, pixels, levels = found["settings"], found["pixels"], found["pixels"]["levels_of_255"]
    accuracy, nll = found["differences"]["accuracy"], found["differences"]["nll"]
    with_it, without, points, low, high = (100 * accuracy[key] for key in ("a", "b", "difference", "low", "high"))
    return (
        "In training, but never in evaluation, a JPEG is decoded at 1/2, 1/4 or 1/8 of its size if each side of the "
        "random crop is then still at least twice what the network needs. This changes little: on tiles of "
        f"{settings['tile']} pixels of {settings['classes']} photographs, for a network of {settings['image_size']} "
        f"pixels, {pixels['decoded_smaller'] / pixels['crops']:.0%} of the crops were decoded smaller, and their "
        f"pixels changed by {levels['draft']['mean']:.1f} of 255 on average (by {levels['bilinear']['mean']:.1f} if "
        f"resized bilinearly instead of bicubically). `{settings['model']}`, fine-tuned to tell the photographs apart "
        f"with and without it ({len(settings['seeds'])} seeds, {settings['test_tiles']} test tiles), had an accuracy "
        f"of {with_it:.2f} and {without:.2f} %, difference {points:+.2f} [{low:+.2f}, {high:+.2f}] points, and an NLL "
        f"of {nll['a']:.3f} and {nll['b']:.3f}, difference {nll['difference']:+.3f} [{nll['low']:+.3f}, "
        f"{nll['high']:+.3f}] ([jpeg_draft.json](../model_cards/benchmarks/jpeg_draft.json))."
    )


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
        "The two [designs of the corruption benchmark](corruptions.md#the-benchmark) with equal numbers of forward "
        f"passes, for a {found['model'].partition(';')[0]}, over {found['draws']:,} drawn test sets "
        "([spread_design.json](../model_cards/benchmarks/spread_design.json)):"
    )
    return "\n".join([text, "", *rows])


def speed() -> str:
    corruptions, metrics, evaluation = load("corruptions"), load("metrics"), load("evaluation")
    full = corruptions["32_full_benchmark"]
    (report,), (benchmark,) = evaluation["report"].values(), evaluation["corruptions"].values()
    size = evaluation["settings"]["report_size"]
    slower = metrics["stream"]["times_slower_than_ours"]
    lines = [
        f"- all 19 x 5 corruptions of 10,000 images of 32 pixels: {full['seconds']:.0f} s on one thread, "
        f"{full['times_faster']:.0f} times faster than the reference generator; at 224 pixels "
        f"{corruptions['224']['times_faster_on_the_mean_time']:.0f} times faster, and "
        f"{100 * corruptions['224_beside_a_network']['share']:.1f} % of the time of a ResNet-50 forward pass",
        f"- ECE of 1,000,000 x 100 logits: {slower['torchmetrics']:.1f} times faster than torchmetrics, "
        f"{slower['netcal']:.1f} times faster than netcal",
        f"- evaluation with all default metrics takes {evaluation['worst_ratio']:.2f} times as long as the forward "
        f"passes alone; a whole report (temperature, promises, rows, intervals) of EfficientNet-Lite0 at {size} "
        f"pixels {report['ratio']:.2f} times, with corruptions {benchmark['ratio']:.2f} times",
    ]
    return "\n".join(["Speed, from [model_cards/benchmarks](../model_cards/benchmarks):", "", *lines])


def smoke() -> str:
    """The table of examples/jobs/gpu_smoke_test.py, as it was printed."""
    return (CARDS / "benchmarks" / "smoke_test_cpu.md").read_text().strip()


def exported() -> str:
    """What quantisation did to a trained network, from its export."""
    found = ExportReport.load(CARDS / "exported")
    card = (CARDS / "exported" / "README.md").read_text()
    table = re.search(r"^\| \|.*?(?=\n\n)", card, re.DOTALL | re.MULTILINE)[0]
    sets = re.search(r"^\| promised.*?(?=\n\n)", card, re.DOTALL | re.MULTILINE)[0]
    speed = load("exporting")
    text = (
        f"An example from the study, `{found.model}`, on {found.n:,} test images "
        "([export.json](../model_cards/exported/export.json)):"
    )
    ratios = ", ".join(f"{name} {value:.1f} times" for name, value in speed["times_faster_than_pytorch"].items())
    lines = [
        f"{temperature_sentence(found)} The logits of the float32 file differ from PyTorch's by at most "
        f"{found.agreement.largest_difference:.1e}.",
        f"Images per second as a multiple of PyTorch's ({speed['description'].partition(',')[0]}, {speed['device']}, "
        f"batches of {speed['batch_size']}): {ratios} "
        "([exporting.json](../model_cards/benchmarks/exporting.json)).",
    ]
    return "\n\n".join([text, table, lines[0], sets, lines[1]])


def load(name: str) -> dict[str, Any]:
    return json.loads((CARDS / "benchmarks" / f"{name}.json").read_text())
