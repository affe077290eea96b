"""What README says of the study: what a user gains, and what became of the claims."""

import json
from statistics import fmean
from typing import Any

from reproduction.aggregate import difference, estimated, of_table
from reproduction.digest import estimate_text
from reproduction.grid import Grid, cells_of, settings_of
from reproduction.quantities import METRICS, Run

from macs_hf.report.corruption_names import STANDARD_15

from .differences import APPENDED, CARDS, accuracy_by_corruption, claims_of, grid_of, numbers, runs_of


FAMILIES = ("macs", "control", "margin", "recommended", "appended", "longer", "longer_recommended", "equal_time")
LONGER = "num_train_epochs=16"
HEADLINE = {
    "accuracy": "accuracy, %",
    "mean15": "accuracy, corrupted, %",
    "corrupted_gap": "overconfidence, corrupted, %",
    "nll_after": "NLL",
    "corrupted_nll": "NLL, corrupted",
}
TRAINED_WITH = {
    "ce": "`ce`, cross-entropy",
    "macs": "`macs`, the paper's method",
    "consistency_only": "`consistency_only`, without the margin term",
    "two_view_ce": "cross-entropy on the images that `macs` sees",
    "recommended": "**`recommended`**",
    APPENDED: "cross-entropy on the images that `recommended` sees",
    "augmix": "`augmix`",
}
COMPARED = {
    "macs minus ce": "`macs` minus `ce`",
    "recommended minus ce": "`recommended` minus `ce`",
    "macs minus two_view_ce": "`macs` minus cross-entropy on the images that it sees",
    "macs minus consistency_only": "`macs` minus `macs` without the margin term",
    f"recommended minus {APPENDED}": "`recommended` minus cross-entropy on the images that it sees",
    f"macs, {LONGER} minus ce, {LONGER}": "`macs` minus `ce`, both with twice the steps",
    f"recommended, {LONGER} minus ce, {LONGER}": "`recommended` minus `ce`, both with twice the steps",
    f"macs minus ce, {LONGER}": "`macs` minus `ce` with twice the steps, which takes about the same time",
}

OTHER_DATA = {
    "fashion": "Fashion-MNIST, the same network",
    "scratch": "All of CIFAR-10, a small network from scratch",
}
SHOWN = ("ce", "macs", "recommended")
HELPED = ("gaussian_noise", "shot_noise", "impulse_noise", "glass_blur", "snow", "frost")


def headline() -> str:
    """What a user gains, in a sentence, a short table and a picture."""
    # With all ten seeds of the two settings that have them.
    grid, groups = grid_of("study"), of_table(grid_of("study"), "more_seeds", runs_of("study"))
    rows = {row.label: row for row in settings_of(grid, "finetuning") if row.label in TRAINED_WITH}
    means = {
        (name, metric): estimated(groups, rows[name], metric).mean
        for name in ("ce", "recommended")
        for metric in ("accuracy", "mean15", "corrupted_gap")
    }
    resized = {row.label: row for row in settings_of(grid, "original")}
    original = {
        name: estimated(groups, resized[f"{name}, corrupted=at_original_size"], "mean15")
        for name in ("ce", "recommended")
    }
    kinds = {name: accuracy_by_corruption(groups[rows[name]]) for name in ("ce", "recommended")}
    helped, others = (
        [f"{fmean(kinds[name][kind] for kind in STANDARD_15 if (kind in HELPED) == wanted):.1f}" for name in kinds]
        for wanted in (True, False)
    )
    covered = {name: 100 * fmean(map(_covered, groups[rows[name]])) for name in ("ce", "recommended")}
    sentence = (
        "EfficientNet-Lite0, pretrained on ImageNet and fine-tuned on 4,000 CIFAR-10 images, classifies "
        f"{means['ce', 'mean15']:.1f} % of corrupted test images correctly with plain cross-entropy, and "
        f"**{means['recommended', 'mean15']:.1f} % with the method `recommended`**. On these images its confidence is "
        f"{means['recommended', 'corrupted_gap']:.1f} points above its accuracy, instead of "
        f"{means['ce', 'corrupted_gap']:.1f}. Prediction sets that are made to contain the right class for 90 % of "
        f"clean images contain it for {covered['recommended']:.0f} % of corrupted ones, instead of "
        f"{covered['ce']:.0f} %. On clean images the two are "
        f"about as accurate ({means['ce', 'accuracy']:.1f} and {means['recommended', 'accuracy']:.1f} %), and a "
        f"training step takes {_step_time(grid, 'recommended'):.2f} times as long. Means ± standard deviations over "
        "seeds ([docs/study.md](docs/study.md)):"
    )
    lines = ["| trained with | seeds | " + " | ".join(HEADLINE.values()) + " | time of a step |"]
    lines.append("| --- |" + " --- |" * (len(HEADLINE) + 2))
    for label, text in TRAINED_WITH.items():
        if len(groups.get(rows[label], ())) >= len(grid.seeds):
            found = {name: estimated(groups, rows[label], name) for name in HEADLINE}
            digits = {name: 1 if METRICS[name].scale == 100 else METRICS[name].decimals for name in found}
            cells = (estimate_text(value, digits[name]) for name, value in found.items())
            seeds = len(groups[rows[label]])
            lines.append(f"| {text} | {seeds} | " + " | ".join(cells) + f" | {_step_time(grid, label):.2f} |")
    note = (
        f"Under six corruptions, three kinds of noise, glass blur, snow and frost, accuracy rises from {helped[0]} to "
        f"{helped[1]} %; under the other nine, from {others[0]} to {others[1]} %. Training perturbs images with noise "
        "and blur, so a part of the gain is to be expected. On images corrupted at 32 pixels, as CIFAR-10-C is, "
        f"accuracy rises from {original['ce'].mean:.1f} to {original['recommended'].mean:.1f} % "
        f"({original['ce'].n} seeds). "
        "*Corrupted* is the mean over 15 kinds of noise, blur, weather and digital corruption. *Overconfidence* is "
        "the mean confidence minus the accuracy; no claim about it was made beforehand. NLL, the negative "
        "log-likelihood, says how good the probabilities are: lower is better. The logits of each model were divided "
        "by its temperature, fitted on held-out images. "
        "Times are multiples of that of plain `Trainer`, for batches of 32 ([docs/cost.md](docs/cost.md))."
    )
    picture = "![Accuracy, robustness and likelihood of each method](model_cards/study/methods.png)"
    return "\n".join([sentence, "", *lines, "", note, "", picture])


def _covered(run: Run) -> float:
    """The share of corrupted images whose prediction set has the right class, over all severities."""
    return fmean(share.value for share in run.report.guarantees.shown_set.severity_coverage.values())


def _step_time(grid: Grid, label: str) -> float:
    """Time of a training step compared with plain `Trainer`, from the benchmark that the study's figure names."""
    cost = grid.figures["methods"]["cost"]
    times = json.loads((CARDS / "benchmarks" / "training.json").read_text())["models"][cost["model"]]
    return times["time_ratio"][cost["methods"][label]]


def results() -> str:
    """What became of the claims about MaCS and the recommended recipe, and the other data in a sentence each."""
    metrics = ("accuracy", "mean15", "nll_after", "corrupted_nll")
    claims = [row for row in claims_of("study") if row["family"] in FAMILIES and row["dataset"] == "cifar10"]
    found = {(row["pair"], row["metric"]): row for row in claims}  # of a claim that was made twice, the later one
    grid = grid_of("study")
    text = (
        "Fine-tuning a pretrained network: differences with 95 % intervals, and what became of the claims that were "
        "made before the runs. A claim *held* if the whole interval lies in the range that it names. Verdicts are "
        "corrected for the number of claims, the intervals shown are not: one that just excludes 0 may not decide. "
        "The claim about ten seeds was made when five of them were known."
    )
    titles = (f"{METRICS[metric].title} (claimed: {_claimed(grid, metric)})" for metric in metrics)
    lines = ["| | seeds | " + " | ".join(titles) + " |", "| --- | --- |" + " --- |" * len(metrics)]
    for pair, name in COMPARED.items():
        rows = [found.get((pair, metric)) for metric in metrics]
        if not any(rows):  # not run yet
            continue
        seeds = max(int(row["n"]) for row in rows if row is not None)
        cells = (
            _difference_cell(row if row and int(row["n"]) == seeds else _unclaimed(pair, metric))
            for metric, row in zip(metrics, rows, strict=True)
        )
        lines.append(f"| {name} | {seeds} | " + " | ".join(cells) + " |")
    finished, planned = sum(map(len, runs_of("study").values())), len(cells_of(grid))
    unfinished = f"{finished} of {planned} runs of the study are finished, so verdicts may still change."
    others = (_means(grid, table, text) for table, text in OTHER_DATA.items())
    notes = [note for note in (*others, unfinished if finished < planned else "") if note]
    return "\n".join([text, "", *lines, "", *(f"- {note}" for note in notes)])


def _means(grid: Grid, table: str, name: str) -> str:
    """A table in two sentences; empty as long as one of the methods does not have all its seeds."""
    groups = of_table(grid, table, runs_of("study"))
    seeds = {row: sum(cell.setting == row for cell in cells_of(grid, [table])) for row in settings_of(grid, table)}
    rows = [row for row in seeds if row.method in SHOWN and len(groups.get(row, ())) == seeds[row]]
    if [row.method for row in rows] != list(SHOWN):
        return ""
    corrupted, clean = (
        ", ".join(f"{estimated(groups, row, metric).mean:.1f} % with `{row.method}`" for row in rows)
        for metric in ("mean15", "accuracy")
    )
    pair = f"{next(row.label for row in rows if row.method == 'macs')} minus {rows[0].label}"
    outcomes = [
        row["outcome"]
        for row in claims_of("study")
        if (row["dataset"], row["model"], row["pair"]) == (rows[0].dataset, rows[0].model, pair)
    ]
    return (
        f"{name}, {seeds[rows[0]]} seeds: accuracy under corruption {corrupted}; on clean images {clean}. Of "
        f"{len(outcomes)} claims about `macs` there, {outcomes.count('held') or 'none'} held."
    )


def _claimed(grid: Grid, metric: str) -> str:
    """The range that every claim of the families about a metric names."""
    (claimed,) = {tuple(c["range"]) for c in grid.claims if c.get("family") in FAMILIES and c["metric"] == metric}
    low, high = claimed
    return f"above {low:g}" if high is None else f"below {high:g}"


def _unclaimed(pair: str, metric: str) -> dict[str, Any]:
    """The same difference in a metric that no claim is about, over all seeds that both sides have."""
    rows = {row.label: row for table in ("finetuning", "longer") for row in settings_of(grid_of("study"), table)}
    a, b = pair.split(" minus ")
    found = difference(runs_of("study"), rows[a], rows[b], metric)
    return {"metric": metric, "difference": found.value, "low": found.low, "high": found.high, "outcome": "no claim"}


def _difference_cell(row: dict[str, Any]) -> str:
    return f"{numbers(row)}, {row['outcome']}"
