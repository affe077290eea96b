"""The parts of README.md and docs/ that come from code and results: they stand between marks as `<!-- arguments -->`.

Only what this repository can measure again is written here. Results of scripts that are gone are plain text in the
pages, beside the version that they were measured with.
"""

import dataclasses
import itertools
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any

from macs_hf import Objective
from macs_hf.exporting import ExportReport, write_card
from macs_hf.publishing.card import CardSettings, model_card
from macs_hf.rendering.pictures import png, report_pictures
from macs_hf.report.report import EvaluationReport
from macs_hf.report.rows import STANDARD_15

from .claims import step_times as step_times_of
from .grid import (
    BOTH_TERMS,
    IN_PLACE,
    NAMES,
    RECOMMENDED,
    SAME_IMAGES,
    Grid,
    Setting,
    load_grid,
    name_of,
    settings_of,
)
from .results import METRICS, Groups, Run, by_setting, difference, estimated, load_runs, of_table
from .tables import estimate_text, interval_of, interval_text, label_without_shared, markdown, stored_claims


ROOT = Path(__file__).parents[2]
CARDS = ROOT / "model_cards"
TIMED_NETWORK = "tf_efficientnet_lite0, batch 32"  # of the benchmarks of training: that of the study
MAIN = "finetuning"  # the table that README and most of docs/study.md are about
Row = dict[str, Any]


@cache
def study() -> Grid:
    return load_grid(ROOT / "examples" / "configs" / "study.yaml")


@cache
def runs() -> Groups:
    return by_setting(load_runs(CARDS / "study"))


@cache
def claims() -> list[Row]:
    """Those for which there are runs."""
    return [row for row in stored_claims(CARDS / "study") if row["low"] is not None]


def rows_of(table: str) -> tuple[dict[str, Setting], Groups]:
    """The rows of a table by label, and its runs."""
    rows = {label_without_shared(row): row for row in settings_of(study(), table)}
    return rows, of_table(study(), table, runs())


def benchmark(name: str) -> dict[str, Any]:
    return json.loads((CARDS / "benchmarks" / f"{name}.json").read_text())


def short(groups: Groups, row: Setting, metric: str) -> str:
    """Mean ± standard deviation over seeds, percentages with one digit behind the point."""
    digits = 1 if METRICS[metric].scale == 100 else METRICS[metric].decimals
    return estimate_text(estimated(groups, row, metric), digits)


def minus(groups: Groups, a: Setting, b: Setting, metric: str) -> str:
    """The difference of two settings with its interval."""
    return interval_text(metric, *difference(groups, a, b, metric)[:3])


def step_time(label: str) -> float:
    """Time of a training step compared with plain `Trainer`, for the study's network and batches."""
    return step_times_of(TIMED_NETWORK, label)[0]


def covered(group: Sequence[Run]) -> tuple[float, float]:
    """How often the prediction sets for 90 % contain the right class: on clean and on corrupted images, in percent."""
    sets = [run.report.guarantees.shown_set for run in group]
    corrupted = fmean(share.value for found in sets for share in found.severity_coverage.values())
    return 100 * fmean(found.test_coverage.value for found in sets), 100 * corrupted


def accuracy_by_corruption(group: Sequence[Run]) -> dict[str, float]:
    """In percent, over severities and runs, under each of the standard corruptions."""
    tables = [run.report.corruptions.by_corruption() for run in group]
    return {name: 100 * fmean(table[name] for table in tables) for name in STANDARD_15}


# ---- README.md ----

README_WIDTH = 118
HEADLINE = {
    "accuracy": "accuracy, clean images",
    "mean15": "accuracy, corrupted images",
    "corrupted_gap": "overconfidence, corrupted images",
}


def headline() -> str:
    """What a user gains: four rows, and what the fair control says."""
    rows, groups = rows_of(MAIN)
    lines = []
    for label in ("ce", RECOMMENDED, SAME_IMAGES, "augmix"):
        text = f"**{name_of(label)}**" if label == RECOMMENDED else name_of(label)
        cells = (f"{estimated(groups, rows[label], metric).mean:.1f} %" for metric in HEADLINE)
        lines.append([f"{text}, {step_time(label):.1f}x", *cells])
    seeds = len(groups[rows["ce"]])
    where = (
        f"EfficientNet-Lite0, pretrained on ImageNet, fine-tuned on 4,000 CIFAR-10 images; means over {seeds} seeds. "
        "*Corrupted* is the mean over 15 kinds of noise, blur, weather and digital corruption; *overconfidence* is "
        "mean confidence minus accuracy. Steps are timed at 64 pixels; at 224 pixels recommended takes "
        f"{by_size('224')['recommended']:.1f}x, AugMix {by_size('224')['augmix']:.1f}x."
    )
    pair = rows[RECOMMENDED], rows[SAME_IMAGES]
    seeds_of_both = difference(runs(), *pair, "accuracy").n
    control = (
        f"Most of the gain comes from seeing perturbed images at all: the fair control, *{NAMES[SAME_IMAGES]}*, "
        f"learns from the same images by cross-entropy alone, and recommended minus it is "
        f"{minus(runs(), *pair, 'mean15')} points on corrupted and {minus(runs(), *pair, 'accuracy')} on clean images "
        f"over {seeds_of_both} seeds. Both controls, this one and half of the images perturbed in place "
        f"({by_size('64')[IN_PLACE]:.1f}x), gain about as much; what the consistency term adds is "
        "calibration as trained, before any temperature: "
        f"{minus(runs(), *pair, 'ece')} points of ECE "
        "([all controls](docs/study.md#3-what-do-the-terms-buy-over-seeing-perturbed-images))."
    )
    table = markdown(["trained with, time of a step", *HEADLINE.values()], lines)
    return "\n\n".join([fill(where, README_WIDTH), table, fill(control, README_WIDTH, break_on_hyphens=False)])


# ---- docs/study.md ----

WHERE = {
    MAIN: "CIFAR-10, 4,000 images, pretrained network",
    "fashion": "Fashion-MNIST, 4,000 images, pretrained network",
    "scratch": "CIFAR-10, 45,000 images, small network from scratch",
}


def names() -> str:
    """What the names of tables and pictures stand for."""
    labels = {"ce", BOTH_TERMS, "label_smoothing", "mixup", "augmix", *itertools.chain(*CONTROLS)}
    return markdown(
        ["name", "method and arguments"], ([NAMES[label], f"`{label}`"] for label in NAMES if label in labels)
    )


def corruption() -> str:
    """Question 1: accuracy on clean and on corrupted images, and the gain over cross-entropy."""
    lines = []
    for table, where in WHERE.items():
        rows, groups = rows_of(table)
        for label in ("ce", RECOMMENDED, "macs", "label_smoothing", "mixup", "augmix"):
            if label in rows and rows[label] in groups:
                levels = [short(groups, rows[label], metric) for metric in ("accuracy", "mean15")]
                gain = "" if label == "ce" else minus(groups, rows[label], rows["ce"], "mean15")
                lines.append([where, name_of(label), str(len(groups[rows[label]])), *levels, gain])
    titles = ["data and network", "trained with", "seeds", "accuracy, %", "accuracy under corruption, %"]
    return markdown([*titles, "gain over cross-entropy, points"], lines)


def each_corruption() -> str:
    rows, groups = rows_of(MAIN)
    labels = ("ce", RECOMMENDED, SAME_IMAGES)
    means = [accuracy_by_corruption(groups[rows[label]]) for label in labels]
    lines = ([name.replace("_", " "), *(f"{found[name]:.1f}" for found in means)] for name in STANDARD_15)
    return markdown(["corruption", *(f"{name_of(label)}, %" for label in labels)], lines)


def calibration() -> str:
    """Question 2: calibration on clean images, overconfidence and coverage of prediction sets under corruption."""
    rows, groups = rows_of(MAIN)
    metrics = ("ece", "ece_after", "nll_after", "corrupted_gap", "corrupted_nll")
    lines = []
    for label in ("ce", RECOMMENDED, "macs", SAME_IMAGES, "label_smoothing", "mixup", "augmix"):
        sets = (f"{share:.1f}" for share in covered(groups[rows[label]]))
        lines.append([name_of(label), *(short(groups, rows[label], metric) for metric in metrics), *sets])
    titles = ["trained with", "ECE as trained, %", "ECE, %", "NLL", "overconfidence under corruption, points"]
    titles += ["NLL under corruption", "coverage of 90 % sets, %", "the same under corruption, %"]
    return markdown(titles, lines)


CONTROLS = (
    ("macs", "two_view_ce"),
    ("macs", "consistency_only"),
    (RECOMMENDED, SAME_IMAGES),
    (BOTH_TERMS, IN_PLACE),
    (BOTH_TERMS, IN_PLACE.replace("0.5,", "0.5, max_steps=1220,")),
    (RECOMMENDED, IN_PLACE),
    (RECOMMENDED, IN_PLACE.replace("0.5,", "0.5, max_steps=1220,")),
)


def controls() -> str:
    """Question 3: differences from networks that see the same perturbed images without the two terms."""
    metrics = ("accuracy", "mean15", "ece", "ece_after", "nll_after")
    settings = {row.label: row for table in (MAIN, "in_place") for row in settings_of(study(), table)}
    registered: dict[tuple[str, str], Row] = {}
    for row in claims():
        key = (row["pair"], row["metric"])
        if row["dataset"] == "cifar10" and row["n"] >= registered.get(key, row)["n"]:
            registered[key] = row
    lines = []
    for a, b in CONTROLS:
        rows = [settings[label]._replace(dataset="cifar10", model="efficientnet_lite0") for label in (a, b)]
        if rows[1] not in runs():
            continue
        pair, seeds = f"{a} minus {b}", difference(runs(), *rows, metrics[0]).n
        claimed = (registered.get((pair, metric), {"n": None}) for metric in metrics)
        outcomes = (claim["outcome"] if claim["n"] == seeds else "exploratory" for claim in claimed)
        found = (minus(runs(), *rows, metric) for metric in metrics)
        cells = (f"{each}, {outcome}" for each, outcome in zip(found, outcomes, strict=True))
        lines.append([name_of(pair), str(seeds), *cells])
    titles = ["accuracy, points", "accuracy under corruption, points", "ECE as trained, points", "ECE, points"]
    titles.append("NLL")
    return markdown(["difference", "seeds", *titles], lines)


def rule() -> str:
    """Question 4: the rule that was fixed before the runs, and what they gave."""
    limits = {claim["metric"]: claim["range"] for claim in study().claims if claim.get("family") == "both_terms"}
    lines = []
    for row in (row for row in claims() if row["family"] == "both_terms"):
        low, high = limits[row["metric"]]
        met = row["difference"] > low if high is None else row["difference"] < high
        wanted = f"above {low:g}" if high is None else f"below {high:g}"
        title = METRICS[row["metric"]].title
        lines.append([row["dataset"], title, str(row["n"]), interval_of(row), wanted, "yes" if met else "**no**"])
    return markdown(
        ["data", f"{NAMES[BOTH_TERMS]} minus {NAMES[RECOMMENDED]}", "seeds", "found", "allowed", "met"], lines
    )


def verdicts() -> str:
    """Question 5: the paper's claims, pre-registered, on the data of the study."""
    places = {("cifar10", "efficientnet_lite0"): MAIN, ("fashion_mnist", "efficientnet_lite0"): "fashion"}
    places["cifar10", "medium"] = "scratch"
    found: dict[str, dict[str, str]] = {}
    for row in claims():
        place = places.get((row["dataset"], row["model"]))
        if row["pair"] == "macs minus ce" and place and row["family"] not in ("original", "equal_time"):
            cells = found.setdefault(METRICS[row["metric"]].title, {})
            cells[place] = f"{interval_of(row)}, {row['outcome']}"
    lines = ([title, *(cells.get(place, "-") for place in WHERE)] for title, cells in found.items())
    return markdown(["MaCS (paper) against cross-entropy", *WHERE.values()], lines)


def outcomes() -> str:
    """How many claims there were, and what became of them."""
    timed = [row["outcome"] for row in claims() if row["dataset"] == "benchmark"]
    tested = [row["outcome"] for row in claims() if row["dataset"] != "benchmark"]
    counts = (", ".join(f"{n} {what}" for what, n in Counter(each).most_common()) for each in (tested, timed))
    count = sum(map(len, runs().values()))
    return "{} runs. Pre-registered claims about differences: {}; about step times: {}.".format(count, *counts)


# ---- Other pages ----

DATA = {
    "train_32_later_pass": "training at 32 pixels, from the second pass on, compared with transformers' example",
    "train_32_first_pass": "the same, first pass",
    "train_photo": "training, 500x375 JPEG to 224 pixels, compared with transformers' example",
    "train_12_megapixels": "training, 12-megapixel JPEG to 224 pixels, compared with transformers' example",
    "evaluate_32_first_pass": "evaluation at 32 pixels, first pass, compared with one image at a time",
    "evaluate_32_later_pass": "the same, from the second pass on",
    "augmix_32": "AugMix views at 32 pixels, compared with torchvision's",
}
TIMED = ("macs", RECOMMENDED, "augmix", "ce, ema_decay=0.99")
CHEAP = ("focal", "label_smoothing", "mixup", "ce")


def frost() -> str:
    """How far the approximation of frost is from the original."""
    fidelity = json.loads((CARDS / "corruption_fidelity.json").read_text())
    found = fidelity["stand_in"]["frost, procedural stand-in"]
    return (
        "Frost uses the original textures if you have them (`frost_textures=FOLDER`, or the installed package "
        "`imagecorruptions`). Otherwise it uses an approximation, which every result names. A ResNet-20 is "
        f"{abs(found['mean_difference']):.1f} points less accurate under the approximation than under the original."
    )


def step_times() -> str:
    """Step time and memory of each method over plain Trainer, as measured."""
    found = benchmark("training")
    models = [(*name.split(", batch "), model) for name, model in found["models"].items()]
    networks = [network for network, _, _ in models]
    lines = []
    for network, batch, model in sorted(models, key=lambda entry: (networks.index(entry[0]), int(entry[1]))):
        times, memory = model["time_ratio"], model["memory_ratio"]
        cells = (f"{times[key]:.2f} / {memory[key]:.2f}" if key in times else "-" for key in TIMED)
        if TIMED[0] in times:
            lines.append([network, batch, *cells])
    cheap = [model["time_ratio"][key] for _, _, model in models for key in CHEAP if key in model["time_ratio"]]
    noise = max(abs(model["time_ratio"]["Trainer_again"] - 1) for model in found["models"].values())
    text = (
        "Time of a training step / peak memory, as multiples of those of plain `Trainer` with cross-entropy. Images "
        f"have {found['settings']['image_size']} pixels; CPU threads: {found['settings']['threads']} "
        "([training.json](../model_cards/benchmarks/training.json)). Methods take turns step by step. A second plain "
        f"`Trainer` differed from the first by up to {noise:.2f}, so smaller differences mean nothing. Focal loss, "
        f"label smoothing, MixUp and `MaCSTrainer` with cross-entropy take {min(cheap):.2f} to {max(cheap):.2f} times "
        "as long."
    )
    return "\n\n".join([text, markdown(["model", "batch", *map(name_of, TIMED)], lines)])


def by_size(size: str) -> dict[str, float]:
    """Time of a step of each method over plain Trainer, with the study's network and batches, at that size."""
    return benchmark(f"step_times_{size}")["models"][TIMED_NETWORK]["time_ratio"]


def image_sizes() -> str:
    """How the time of a step grows with the images."""
    settings = {name: name_of(name) for name in ("macs", "recommended", BOTH_TERMS)}
    settings |= {SAME_IMAGES.removesuffix(", perturbed_share=0.2"): NAMES[SAME_IMAGES]}
    settings |= {name: name_of(name) for name in (IN_PLACE, "augmix")}
    sizes = {f"{size} pixels": by_size(size) for size in ("64", "224")}
    lines = ([name, *(f"{times[key]:.2f}" for times in sizes.values())] for key, name in settings.items())
    text = (
        "The same with EfficientNet-Lite0 and 32 images, all methods in one run at each size "
        "([64](../model_cards/benchmarks/step_times_64.json), [224](../model_cards/benchmarks/step_times_224.json)); "
        "larger images make a second view dearer. Another day than the table above, so compare within this one:"
    )
    return "\n\n".join([text, markdown(["time of a step", *sizes], lines)])


def data_loading() -> str:
    """Images per second of the data path over the usual ways, as measured."""
    found = benchmark("data")
    times, ranges = (
        {name: value for part in found["scenarios"].values() for name, value in part[key].items()}
        for key in ("ratio", "ratio_range")
    )
    lines = ([text, "{:.1f} [{:.1f}, {:.1f}]".format(times[name], *ranges[name])] for name, text in DATA.items())
    text = (
        "Images per CPU second from an `ImageDataset` in torch's `DataLoader`, on one thread, compared with other "
        "ways ([data.json](../model_cards/benchmarks/data.json)). Small images are kept decoded in memory: "
        f"{found['memory']['images']:,} images of 32 pixels take {found['memory']['cached_pixels_megabytes']:.0f} MB:"
    )
    title = f"times faster [smallest, largest of {found['settings']['rounds']} rounds]"
    return "\n\n".join([text, markdown(["what is read", title], lines)])


def speed() -> str:
    corruptions, metrics, evaluation = map(benchmark, ("corruptions", "metrics", "evaluation"))
    full = corruptions["32_full_benchmark"]
    (report,), (benchmarked,) = evaluation["report"].values(), evaluation["corruptions"].values()
    return "\n".join(
        [
            f"- All 19 x 5 corruptions of 10,000 images of 32 pixels: {full['seconds']:.0f} s on one thread, "
            f"{full['times_faster']:.0f} times faster than the reference generator; at 224 pixels "
            f"{corruptions['224']['times_faster_on_the_mean_time']:.0f} times faster, and "
            f"{100 * corruptions['224_beside_a_network']['share']:.1f} % of the time of a ResNet-50 forward pass.",
            "- The rows of 1,000,000 x 100 logits, from which all metrics are made, take "
            f"{1 / metrics['rows']['times_slower_than_ours']['torchmetrics']:.1f} times as long as torchmetrics' ECE.",
            f"- Evaluation with all default metrics takes {evaluation['worst_ratio']:.2f} times as long as the "
            "forward passes alone; a whole report (temperature, guarantees, rows, intervals) of EfficientNet-Lite0 "
            f"at {evaluation['settings']['report_size']} pixels {report['ratio']:.2f} times, with corruptions "
            f"{benchmarked['ratio']:.2f} times.",
        ]
    )


ARGUMENTS = (
    *("lambda_margin", "margin", "lambda_consistency", "consistency_fraction", "perturbation", "perturbation_space"),
    *("noise_std", "blur_sigma_max", "augment_fraction", "class_weights"),
)


def arguments() -> str:
    """One row per field of the objective that users set, from its own help."""
    fields = {field.name: field for field in dataclasses.fields(Objective)}
    lines = ([f"`{name}`", f"`{fields[name].default}`", fields[name].metadata["help"]] for name in ARGUMENTS)
    return markdown(["argument", "default", "meaning"], lines).replace("||", "\\|\\|")


PAGES: dict[str, Iterable[Callable[[], str]]] = {
    "README.md": (headline,),
    "docs/train.md": (arguments,),
    "docs/study.md": (names, corruption, each_corruption, calibration, controls, rule, verdicts, outcomes),
    "docs/measure.md": (frost,),
    "docs/cost.md": (step_times, image_sizes, data_loading, speed),
}


def rendered(page: str, text: str) -> str:
    """The text of a page with its parts as they follow from the results."""
    for make in PAGES[page]:
        name = make.__name__
        pattern = re.compile(rf"<!-- {name} -->\n.*?<!-- /{name} -->\n", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"{page} has no marks <!-- {name} --> and <!-- /{name} -->.")
        block = f"<!-- {name} -->\n\n{make()}\n\n<!-- /{name} -->\n"
        text = pattern.sub(lambda _, block=block: block, text, count=1)
    return text


def stored_cards() -> dict[Path, str]:
    """The cards in model_cards/, as their reports make them now."""
    folders = [path.parent for path in sorted(CARDS.glob("*/card.json"))]
    made = {
        folder / "README.md": model_card(
            EvaluationReport.load(folder / "evaluation.json"), CardSettings.load(folder)
        ).content
        for folder in folders
    }
    exported = CARDS / "exported"
    with tempfile.TemporaryDirectory() as scratch:
        write_card(ExportReport.load(exported), scratch, name=exported.name, license="apache-2.0")
        return made | {exported / "README.md": Path(scratch, "README.md").read_text(encoding="utf-8")}


def draw_cards() -> None:
    """The pictures of these cards, again."""
    for settings in CARDS.glob("*/card.json"):
        for name, figure in report_pictures(EvaluationReport.load(settings.with_name("evaluation.json"))):
            settings.with_name(name).write_bytes(png(figure))


def render_pages(write: bool) -> list[str]:
    """The pages and cards that are not as their results say; `write` makes them so, and draws the cards' pictures."""
    if write:
        draw_cards()
    pages = {ROOT / page: rendered(page, (ROOT / page).read_text(encoding="utf-8")) for page in PAGES}
    stale = {path: text for path, text in (stored_cards() | pages).items() if path.read_text(encoding="utf-8") != text}
    for path, text in stale.items() if write else ():
        path.write_text(text, encoding="utf-8")
    return [path.relative_to(ROOT).as_posix() for path in stale]
