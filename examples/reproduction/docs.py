"""The parts of README.md and docs/ that come from code and results: they stand between marks as `<!-- claims -->`.

Only what this repository can measure again is written here. Results of scripts that are gone are plain text in the
pages, beside the version that they were measured with.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import macs_hf
from macs_hf.report.rows import STANDARD_15

from .claims import step_times as step_times_of
from .grid import CONSISTENCY, CONTROL, NAMES, SAME_IMAGES, Grid, Setting, cells_of, load_grid, name_of, settings_of
from .results import METRICS, Groups, Run, by_setting, difference, estimated, load_runs, of_table
from .tables import claims_table, estimate_text, interval_of, label_without_shared, main_table, markdown, stored_claims


ROOT = Path(__file__).parents[2]
CARDS = ROOT / "model_cards"
Row = dict[str, Any]


@cache
def grid_of(study: str) -> Grid:
    """The grid of a study, `study` or `few_images`."""
    return load_grid(ROOT / "examples" / "configs" / f"{study}.yaml")


@cache
def runs_of(study: str) -> Groups:
    """Its committed runs, by setting."""
    return by_setting(load_runs(CARDS / study))


def claims_of(study: str) -> list[Row]:
    """Those for which there are runs."""
    return [row for row in stored_claims(CARDS / study) if row["low"] is not None]


def benchmark(name: str) -> dict[str, Any]:
    return json.loads((CARDS / "benchmarks" / f"{name}.json").read_text())


def finetuned() -> tuple[dict[str, Setting], Groups]:
    """The rows of the main table by label, and its runs."""
    grid = grid_of("study")
    return {row.label: row for row in settings_of(grid, "finetuning")}, of_table(grid, "finetuning", runs_of("study"))


def found_difference(groups: Groups, a: Setting, b: Setting, metric: str) -> Row:
    found = difference(groups, a, b, metric)
    return {"metric": metric, "difference": found.value, "low": found.low, "high": found.high, "outcome": "no claim"}


def accuracy_by_corruption(runs: Sequence[Run]) -> dict[str, float]:
    """In percent, over severities and runs, under each of the standard corruptions."""
    tables = [run.report.corruptions.by_corruption() for run in runs]
    return {name: 100 * fmean(table[name] for table in tables) for name in STANDARD_15}


# ---- README.md ----

FAMILIES = ("macs", "control", "margin", "consistency", "appended", "longer", "longer_consistency", "equal_time")
OURS = CONSISTENCY  # what the first sentences of README are about
LONGER = "num_train_epochs=16"
HEADLINE = {
    "accuracy": "accuracy, %",
    "mean15": "accuracy, corrupted, %",
    "corrupted_gap": "overconfidence, corrupted, %",
    "nll_after": "NLL",
    "corrupted_nll": "NLL, corrupted",
}
TRAINED_WITH = ("ce", "macs", "consistency_only", "two_view_ce", CONSISTENCY, SAME_IMAGES, "augmix")
LONGER_CONSISTENCY = CONSISTENCY.replace("0.25,", f"0.25, {LONGER},")
COMPARED = (
    ("macs", "ce"),
    (CONSISTENCY, "ce"),
    ("macs", "two_view_ce"),
    ("macs", "consistency_only"),
    (CONSISTENCY, SAME_IMAGES),
    (f"macs, {LONGER}", f"ce, {LONGER}"),
    (LONGER_CONSISTENCY, f"ce, {LONGER}"),
    ("macs", f"ce, {LONGER}"),
)
OTHER_DATA = {
    "fashion": "Fashion-MNIST, the same network",
    "scratch": "All of CIFAR-10, a small network from scratch",
}
SHOWN = ("ce", "macs", OURS)
HELPED = ("gaussian_noise", "shot_noise", "impulse_noise", "glass_blur", "snow", "frost")


def headline() -> str:
    """What a user gains, in a sentence, a short table and a picture."""
    # With all ten seeds of the two settings that have them.
    grid, groups = grid_of("study"), of_table(grid_of("study"), "more_seeds", runs_of("study"))
    rows, _ = finetuned()
    resized = {label_without_shared(row): row for row in settings_of(grid, "original")}
    facts = {}
    for name in ("ce", OURS):
        runs = groups[rows[name]]
        kinds = accuracy_by_corruption(runs)
        sets = (run.report.guarantees.shown_set.severity_coverage.values() for run in runs)
        facts[name] = {metric: estimated(groups, rows[name], metric).mean for metric in HEADLINE} | {
            "covered": 100 * fmean(fmean(share.value for share in shares) for shares in sets),
            "helped": fmean(kinds[kind] for kind in HELPED),
            "others": fmean(kinds[kind] for kind in STANDARD_15 if kind not in HELPED),
            "original": estimated(groups, resized[name], "mean15").mean,
        }
    (ce, ours), seeds = facts.values(), len(groups[resized["ce"]])
    sentence = (
        "EfficientNet-Lite0, pretrained on ImageNet and fine-tuned on 4,000 CIFAR-10 images, classifies "
        f"{ce['mean15']:.1f} % of corrupted test images correctly with plain cross-entropy, and "
        f"**{ours['mean15']:.1f} % with {name_of(OURS)}**. On these images its confidence is "
        f"{ours['corrupted_gap']:.1f} points above its accuracy, instead of {ce['corrupted_gap']:.1f}. Prediction "
        "sets that are made to contain the right class for 90 % of clean images contain it for "
        f"{ours['covered']:.0f} % of corrupted ones, instead of {ce['covered']:.0f} %. On clean images the two are "
        f"about as accurate ({ce['accuracy']:.1f} and {ours['accuracy']:.1f} %), and a training step takes "
        f"{_step_time(OURS):.2f} times as long. Means ± standard deviations over seeds "
        "([docs/study.md](docs/study.md)):"
    )
    lines = []
    for label in TRAINED_WITH:
        text = f"**{name_of(label)}**" if label == OURS else name_of(label)
        found = {name: estimated(groups, rows[label], name) for name in HEADLINE}
        digits = {name: 1 if METRICS[name].scale == 100 else METRICS[name].decimals for name in found}
        cells = (estimate_text(value, digits[name]) for name, value in found.items())
        lines.append([text, str(len(groups[rows[label]])), *cells, f"{_step_time(label):.2f}"])
    note = (
        "Under six corruptions, three kinds of noise, glass blur, snow and frost, accuracy rises from "
        f"{ce['helped']:.1f} to {ours['helped']:.1f} %; under the other nine, from {ce['others']:.1f} to "
        f"{ours['others']:.1f} %. Training perturbs images with noise and blur, so a part of the gain is to be "
        "expected. On images corrupted at 32 pixels, as CIFAR-10-C is, accuracy rises from "
        f"{ce['original']:.1f} to {ours['original']:.1f} % ({seeds} seeds). *Corrupted* is the mean over 15 kinds of "
        "noise, blur, weather and digital corruption. *Overconfidence* is the mean confidence minus the accuracy; no "
        "claim about it was made beforehand. NLL, the negative log-likelihood, says how good the probabilities are: "
        "lower is better. The logits of each model were divided by its temperature, fitted on held-out images. Times "
        "are multiples of that of plain `Trainer`, for batches of 32 ([docs/cost.md](docs/cost.md))."
    )
    picture = "![Accuracy, robustness and likelihood of each method](model_cards/study/methods.png)"
    table = markdown(["trained with", "seeds", *HEADLINE.values(), "time of a step"], lines)
    return "\n\n".join([sentence, table, note, picture])


def _step_time(label: str) -> float:
    """Time of a training step compared with plain `Trainer`, from the benchmark that the study's figure names."""
    return step_times_of(grid_of("study").figures["methods"]["step_times"], label)[0]


def results() -> str:
    """What became of the claims about MaCS and the recommended recipe, and the other data in a sentence each."""
    metrics = ("accuracy", "mean15", "nll_after", "corrupted_nll")
    claims = [row for row in claims_of("study") if row["family"] in FAMILIES and row["dataset"] == "cifar10"]
    found = {(row["pair"], row["metric"]): row for row in claims}  # of a claim that was made twice, the later one
    grid, groups = grid_of("study"), of_table(grid_of("study"), "more_seeds", runs_of("study"))
    rows = {row.label: row for table in ("finetuning", "longer") for row in settings_of(grid, table)}
    lines = []
    for a, b in COMPARED:
        of_pair = [found.get((f"{a} minus {b}", metric)) for metric in metrics]
        seeds = max(int(row["n"]) for row in of_pair if row is not None)
        # In a metric that no claim is about: over the seeds of the claims.
        of_pair = [
            row if row and int(row["n"]) == seeds else found_difference(groups, rows[a], rows[b], metric)
            for metric, row in zip(metrics, of_pair, strict=True)
        ]
        lines.append(
            [name_of(f"{a} minus {b}"), str(seeds), *(f"{interval_of(row)}, {row['outcome']}" for row in of_pair)]
        )
    text = (
        "Fine-tuning a pretrained network: differences with 95 % intervals, and what became of the claims that were "
        "made before the runs. A claim *held* if the whole interval lies in the range that it names. Verdicts are "
        "corrected for the number of claims, the intervals shown are not: one that just excludes 0 may not decide. "
        "The claim about ten seeds was made when five of them were known."
    )
    titles = ["", "seeds", *(f"{METRICS[metric].title} (claimed: {_claimed(grid, metric)})" for metric in metrics)]
    finished, planned = sum(map(len, runs_of("study").values())), len(cells_of(grid))
    unfinished = f"{finished} of {planned} runs of the study are finished, so verdicts may still change."
    others = (_means(grid, table, text) for table, text in OTHER_DATA.items())
    notes = [note for note in (*others, unfinished if finished < planned else "") if note]
    table = markdown(titles, lines).replace("|  |", "| |", 1)
    return "\n\n".join([text, table, "\n".join(f"- {note}" for note in notes)])


def _claimed(grid: Grid, metric: str) -> str:
    """The range that every claim of the families about a metric names."""
    (claimed,) = {tuple(c["range"]) for c in grid.claims if c.get("family") in FAMILIES and c["metric"] == metric}
    low, high = claimed
    return f"above {low:g}" if high is None else f"below {high:g}"


def _means(grid: Grid, table: str, name: str) -> str:
    """A table in two sentences; empty as long as one of the methods does not have all its seeds."""
    groups = of_table(grid, table, runs_of("study"))
    seeds = {row: sum(cell.setting == row for cell in cells_of(grid, [table])) for row in settings_of(grid, table)}
    rows = [row for row in seeds if row.label in SHOWN and len(groups.get(row, ())) >= seeds[row]]
    if [row.label for row in rows] != list(SHOWN):
        return ""
    corrupted, clean = (
        ", ".join(f"{estimated(groups, row, metric).mean:.1f} % with {name_of(row.label)}" for row in rows)
        for metric in ("mean15", "accuracy")
    )
    where = (rows[0].dataset, rows[0].model, f"{SHOWN[1]} minus {SHOWN[0]}")
    outcomes = [row["outcome"] for row in claims_of("study") if (row["dataset"], row["model"], row["pair"]) == where]
    return (
        f"{name}, {seeds[rows[0]]} seeds: accuracy under corruption {corrupted}; on clean images {clean}. Of "
        f"{len(outcomes)} claims about {name_of(SHOWN[1])} there, {outcomes.count('held') or 'none'} held."
    )


# ---- docs/study.md ----


def table(name: str) -> str:
    """A table of the study: means and standard deviations over seeds."""
    return main_table(grid_of("study"), name, runs_of("study"), grid_of("study").tables[name].columns)


def names() -> str:
    """What the names of tables and pictures stand for."""
    rows, _ = finetuned()
    labels = [label for label in NAMES if label in rows]
    return markdown(["name", "method and arguments"], ([NAMES[label], f"`{label}`"] for label in labels))


def finetuning() -> str:
    """The main table and the picture of it."""
    found, planned = sum(map(len, runs_of("study").values())), len(cells_of(grid_of("study")))
    runs = f"The study has {planned} runs." if found == planned else f"{found} of {planned} runs are finished."
    text = f"{runs} {grid_of('study').tables['finetuning'].title}; means ± standard deviations over seeds:"
    picture = "![Accuracy, robustness and likelihood of each method](../model_cards/study/methods.png)"
    return "\n\n".join([text, table("finetuning"), picture])


def corruptions() -> str:
    """Families as a picture, each corruption as a number."""
    rows, groups = finetuned()
    shown = ("ce", "two_view_ce", "macs", "consistency_only", CONSISTENCY, SAME_IMAGES)
    means = [accuracy_by_corruption(groups[rows[label]]) for label in shown]
    lines = ([name.replace("_", " "), *(f"{found[name]:.1f}" for found in means)] for name in STANDARD_15)
    picture = "![Accuracy under noise, blur, weather and digital corruptions](../model_cards/study/families.png)"
    text = (
        "Accuracy under each corruption, %, mean over severities and seeds. Each row has test images of its own, "
        "about 526, so compare numbers within a row only; differences below about 3 points may be chance:"
    )
    return "\n\n".join([picture, text, markdown(["corruption", *map(name_of, shown)], lines)])


def longer() -> str:
    """Which length suits cross-entropy, and what the others do with it."""
    titles = {name: grid_of("study").tables[name].title for name in ("tuning", "longer")}
    return "\n\n".join(part for name, title in titles.items() for part in (f"{title}:", table(name)))


def conditions() -> str:
    """What the recipe that the search chose had to show on other seeds, and what became of it."""
    timed = grid_of("study").figures["methods"]["step_times"]  # the others are among all claims
    lines = []
    for row in claims_of("study"):
        if not row["pair"].startswith(CONSISTENCY) or (row["metric"] == "overhead" and row["model"] != timed):
            continue
        compared = f" ({row['model']})" if row["metric"] == "overhead" else f", {name_of(row['pair'])}"
        found = f"{METRICS[row['metric']].title}{compared}: {interval_of(row)}"
        lines.append([row["claim"], found, row["outcome"]])
    text = "**What consistency alone has to show**, on seeds that the search did not use:"
    return "\n\n".join([text, markdown(["condition", "found", "outcome"], lines)])


def promises() -> str:
    """What became of the promises of the study's networks on clean and on corrupted test images."""
    titles = ["method", "sets for 90 %: clean", "mean of severities", "severity 1", "severity 3", "severity 5"]
    titles += ["classes in a set", "runs that promise 95 % right answers"]
    titles += ["answered, clean", "right, clean", "right, severity 5"]
    rows, groups = finetuned()
    lines = []
    for label, row in rows.items():
        sets = [run.report.guarantees.shown_set for run in groups[row]]
        answers = [answer for run in groups[row] for answer in run.report.guarantees.abstentions]
        kept = [answer for answer in answers if answer.accuracy == 0.95 and answer.threshold is not None]
        shares = [[found.test_coverage for found in sets]]
        shares += [[share for found in sets for share in found.severity_coverage.values()]]
        shares += [[found.severity_coverage[severity] for found in sets] for severity in (1, 3, 5)]
        answered = [[found.test_answered for found in kept], [found.test_accuracy for found in kept]]
        answered += [[found.severity_accuracy[5] for found in kept]]
        sizes = [f"{fmean(found.mean_size for found in sets):.2f}", f"{len(kept)} of {len(sets)}"]
        lines.append([name_of(label), *map(_percent, shares), *sizes, *map(_percent, answered)])
    return markdown(titles, lines)


def _percent(shares: list[Any]) -> str:
    """The mean over runs."""
    return f"{100 * fmean(share.value for share in shares):.1f} %" if shares else "-"


def claims() -> str:
    """What could have been seen, half of each interval, and what became of each claim."""
    pairs = [("macs", "ce", "5"), ("macs", "two_view_ce", "5"), (CONSISTENCY, CONTROL, "5")]
    pairs += [(CONSISTENCY, SAME_IMAGES, "5"), (CONSISTENCY, SAME_IMAGES, "10")]
    of_study = (row for row in claims_of("study") if row["dataset"] == "cifar10")
    found = {(row["pair"], row["n"], row["metric"]): row for row in of_study}
    metrics = ("accuracy", "mean15", "nll_after", "corrupted_nll")
    lines = []
    for a, b, seeds in pairs:
        widths = (_half(found.get((f"{a} minus {b}", seeds, name))) for name in metrics)
        lines.append([f"{name_of(a)} and {name_of(b)}", seeds, *widths])
    text = (
        "**What could have been seen**: half of the width of the 95 % intervals. A true difference of this size would "
        "be told from 0 in about every second study like this one, before the correction for several claims."
    )
    titles = ["difference between", "seeds", *(METRICS[name].title for name in metrics)]
    return "\n\n".join([text, markdown(titles, lines), claims_table(CARDS / "study")])


def _half(row: Row | None) -> str:
    half = None if row is None else (row["high"] - row["low"]) / 2
    return "-" if half is None else f"{half:.{METRICS[row['metric']].decimals}f}"


def beyond_claims() -> str:
    """What the rows say beyond the claims: sentences, each with the differences that it rests on."""
    rows, groups = finetuned()
    lines = []
    for note in grid_of("study").notes:
        shown = (
            f"{METRICS[metric].title}, {name_of(f'{a} minus {b}')}: "
            f"{interval_of(found_difference(groups, rows[a], rows[b], metric))}"
            for a, b, metric in note["differences"]
        )
        lines.append(f"- {note['note']} {'; '.join(shown)}.")
    return "\n".join(lines)


def findings() -> str:
    """The decided and undecided differences between MaCS and the others, as a list."""
    return "\n".join(
        f"- {METRICS[row['metric']].title}, {name_of(row['pair'])}: {interval_of(row)}; "
        f"{row['claim']}: **{row['outcome']}**"
        for row in claims_of("few_images")
        if row["model"] == "small" and int(row["n"]) > 2
    )


FEW_COLUMNS = ("accuracy", "ece", "nll", "ece_after", "nll_after", "mean15")


def few_images() -> str:
    """The runs with few images in short, with their figure and claims."""
    grid, groups = grid_of("few_images"), runs_of("few_images")
    text = (
        f"{grid.tables['core'].title}, {grid.models['small']['num_train_epochs']} epochs; mean ± standard deviation "
        f"over seeds. Corruptions on {grid.settings['corruption_samples']} fixed test images, everything else on all "
        "10,000:"
    )
    links = (
        f"All {sum(map(len, groups.values()))} runs: [tables with intervals](../model_cards/few_images/tables.md), "
        "[reports](../model_cards/few_images), [settings](../examples/configs/few_images.yaml)."
    )
    picture = "![Accuracy, robustness and cost of each method](../model_cards/few_images/methods.png)"
    table = main_table(grid, "core", groups, FEW_COLUMNS)
    return "\n\n".join([text, table, picture, claims_table(CARDS / "few_images"), links])


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
TIMED = ("macs", "macs, consistency_fraction=0.25", CONSISTENCY, "focal", "label_smoothing", "mixup", "augmix", "ce")
TIMED += ("ce, ema_decay=0.99",)


def ranking() -> str:
    """The excess AURC of some methods of the study."""
    rows, groups = finetuned()
    parts = []
    for label in ("ce", "macs", "two_view_ce", CONSISTENCY):
        values = [run.report.risk_coverage.excess_aurc.value for run in groups[rows[label]]]
        parts.append(f"{name_of(label)} {fmean(values):.4f} ± {stdev(values):.4f}")
    return (
        f"In [the study](study.md#fine-tuning), the excess AURC after the temperature, mean ± standard deviation over "
        f"{len(values)} seeds, was: {', '.join(parts)}. Lower is better. No claim about it was made beforehand."
    )


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
        lines.append([network, batch, str(model["rounds"]), *cells])
    noise = max(abs(model["time_ratio"]["Trainer_again"] - 1) for model in found["models"].values())
    text = (
        "Time of a training step / peak memory, as multiples of those of plain `Trainer` with cross-entropy. Images "
        f"have {found['settings']['image_size']} pixels; CPU threads: {found['settings']['threads']} "
        "([training.json](../model_cards/benchmarks/training.json)). Methods take turns step by step. A second plain "
        f"`Trainer` differed from the first by up to {noise:.2f}, so smaller differences mean nothing:"
    )
    return "\n\n".join([text, markdown(["model", "batch", "rounds", *map(name_of, TIMED)], lines)])


def data_loading() -> str:
    """Images per second of the data path over the usual ways, as measured."""
    found = benchmark("data")
    times, ranges = (
        {name: value for part in found["scenarios"].values() for name, value in part[key].items()}
        for key in ("ratio", "ratio_range")
    )
    lines = []
    for name, text in DATA.items():
        low, high = ranges[name]
        lines.append([text, f"{times[name]:.1f} [{low:.1f}, {high:.1f}]"])
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
    slower = metrics["stream"]["times_slower_than_ours"]
    lines = [
        f"- all 19 x 5 corruptions of 10,000 images of 32 pixels: {full['seconds']:.0f} s on one thread, "
        f"{full['times_faster']:.0f} times faster than the reference generator; at 224 pixels "
        f"{corruptions['224']['times_faster_on_the_mean_time']:.0f} times faster, and "
        f"{100 * corruptions['224_beside_a_network']['share']:.1f} % of the time of a ResNet-50 forward pass",
        f"- ECE of 1,000,000 x 100 logits: {slower['torchmetrics']:.1f} times faster than torchmetrics, "
        f"{slower['netcal']:.1f} times faster than netcal",
        f"- evaluation with all default metrics takes {evaluation['worst_ratio']:.2f} times as long as the forward "
        "passes alone; a whole report (temperature, promises, rows, intervals) of EfficientNet-Lite0 at "
        f"{evaluation['settings']['report_size']} pixels {report['ratio']:.2f} times, with corruptions "
        f"{benchmarked['ratio']:.2f} times",
    ]
    return "\n".join(["Speed, from [model_cards/benchmarks](../model_cards/benchmarks):", "", *lines])


def arguments() -> str:
    """One row per field of the objective, from its own help."""
    fields = dataclasses.fields(macs_hf.Objective)
    lines = ([f"`{field.name}`", f"`{field.default}`", field.metadata["help"]] for field in fields)
    return markdown(["argument", "default", "meaning"], lines).replace("||", "\\|\\|")


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"headline": headline, "results": results},
    "docs/training.md": {"arguments": arguments},
    "docs/study.md": {
        "names": names,
        "finetuning": finetuning,
        "corruptions": corruptions,
        "conditions": conditions,
        "longer": longer,
        "promises": promises,
        "finetuning_more": beyond_claims,
        "claims": claims,
        "findings": findings,
        "few_images": few_images,
        **{
            name: partial(table, name)
            for name in ("more_seeds", "batchnorm", "original", "probabilities", "fashion", "scratch")
        },
    },
    "docs/measuring.md": {"ranking": ranking},
    "docs/corruptions.md": {"frost": frost},
    "docs/cost.md": {"step_times": step_times, "data_loading": data_loading, "speed": speed},
}


def rendered(page: str, text: str) -> str:
    """The text of a page with its parts as they follow from the results."""
    for name, make in PAGES[page].items():
        pattern = re.compile(rf"<!-- {name} -->\n.*?<!-- /{name} -->\n", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"{page} has no marks <!-- {name} --> and <!-- /{name} -->.")
        block = f"<!-- {name} -->\n\n{make()}\n\n<!-- /{name} -->\n"
        text = pattern.sub(lambda _, block=block: block, text, count=1)
    return text


def render_pages(write: bool) -> list[str]:
    """The pages that are not as their results say; `write` makes them so."""
    stale = []
    for page in PAGES:
        before = (ROOT / page).read_text(encoding="utf-8")
        after = rendered(page, before)
        if before != after:
            stale.append(page)
            if write:
                (ROOT / page).write_text(after, encoding="utf-8")
    return stale
