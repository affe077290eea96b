"""What README says of the study: what a user gains, and what became of the claims."""

import json

from reproduction.aggregate import RECORD_FILE, by_setting, estimated, load_runs
from reproduction.digest import estimate_text
from reproduction.grid import Grid, cells_of, load_grid, settings_of
from reproduction.quantities import METRICS

from .differences import APPENDED, CARDS, CONTROL, ROOT, claims_of, numbers


FAMILIES = ("macs", "control", "margin", "recommended", "appended")
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
}
COMPARED = {
    "macs minus ce": "`macs` minus `ce`",
    "recommended minus ce": "`recommended` minus `ce`",
    "macs minus two_view_ce": "`macs` minus cross-entropy on the images that it sees",
    "macs minus consistency_only": "`macs` minus `macs` without the margin term",
    f"recommended minus {APPENDED}": "`recommended` minus cross-entropy on the images that it sees",
    f"recommended minus {CONTROL}": "the same, if the perturbed fifth of these has half of the weight",
}


def headline() -> str:
    """What a user gains, in a sentence, a short table and a picture."""
    grid = load_grid(ROOT / "examples" / "configs" / "study.yaml")
    groups = by_setting(load_runs(CARDS / "study"))
    rows = {row.label: row for row in settings_of(grid, "finetuning") if row.label in TRAINED_WITH}
    means = {
        (name, metric): estimated(groups, rows[name], metric).mean
        for name in ("ce", "recommended")
        for metric in ("accuracy", "mean15", "corrupted_gap", "no_overlap")
    }
    resized = {row.label: row for row in settings_of(grid, "original")}
    original = {
        name: estimated(groups, resized[f"{name}, corrupted=at_original_size"], "mean15")
        for name in ("ce", "recommended")
    }
    sentence = (
        "EfficientNet-Lite0, pretrained on ImageNet and fine-tuned on 4,000 CIFAR-10 images, classifies "
        f"{means['ce', 'mean15']:.1f} % of corrupted test images correctly with plain cross-entropy, and "
        f"**{means['recommended', 'mean15']:.1f} % with the method `recommended`**. On these images its confidence is "
        f"{means['recommended', 'corrupted_gap']:.1f} points above its accuracy, instead of "
        f"{means['ce', 'corrupted_gap']:.1f}. On clean images the two are "
        f"about as accurate ({means['ce', 'accuracy']:.1f} and {means['recommended', 'accuracy']:.1f} %), and a "
        f"training step takes {_step_time(grid, 'recommended'):.2f} times as long. Means ± standard deviations over "
        f"{len(grid.seeds)} seeds, 10,000 test images ([docs/study.md](docs/study.md)):"
    )
    lines = ["| trained with | " + " | ".join(HEADLINE.values()) + " | time of a step |"]
    lines.append("| --- |" + " --- |" * (len(HEADLINE) + 1))
    for label, text in TRAINED_WITH.items():
        if len(groups.get(rows[label], ())) == len(grid.seeds):
            found = {name: estimated(groups, rows[label], name) for name in HEADLINE}
            digits = {name: 1 if METRICS[name].scale == 100 else METRICS[name].decimals for name in found}
            cells = (estimate_text(value, digits[name]) for name, value in found.items())
            lines.append(f"| {text} | " + " | ".join(cells) + f" | {_step_time(grid, label):.2f} |")
    note = (
        "Training perturbs images with noise and blur, so a part of this gain is to be expected. On weather and "
        f"digital corruptions, which are unlike that, accuracy rises from {means['ce', 'no_overlap']:.1f} to "
        f"{means['recommended', 'no_overlap']:.1f} %; on images corrupted at 32 pixels, as CIFAR-10-C is, from "
        f"{original['ce'].mean:.1f} to {original['recommended'].mean:.1f} % ({original['ce'].n} seeds). "
        "*Corrupted* is the mean over 15 kinds of noise, blur, weather and digital corruption. *Overconfidence* is "
        "the mean confidence minus the accuracy. NLL, the negative log-likelihood, says how good the probabilities "
        "are: lower is better. The logits of each model were divided by its temperature, fitted on held-out images. "
        "Times are multiples of that of plain `Trainer`, for batches of 32 ([docs/cost.md](docs/cost.md))."
    )
    picture = "![Accuracy, robustness and likelihood of each method](model_cards/study/methods.png)"
    return "\n".join([sentence, "", *lines, "", note, "", picture])


def _step_time(grid: Grid, label: str) -> float:
    """Time of a training step compared with plain `Trainer`, from the benchmark that the study's figure names."""
    cost = grid.figures["methods"]["cost"]
    times = json.loads((CARDS / "benchmarks" / "training.json").read_text())["models"][cost["model"]]
    return times["time_ratio"][cost["methods"][label]]


def results() -> str:
    """What became of the claims about MaCS and the recommended recipe, with how many runs."""
    metrics = ("accuracy", "mean15", "nll_after", "corrupted_nll")
    claims = [row for row in claims_of("study") if row["family"] in FAMILIES and row["dataset"] == "cifar10"]
    found = {(row["pair"], row["metric"]): row for row in claims}
    grid = load_grid(ROOT / "examples" / "configs" / "study.yaml")
    text = (
        "Fine-tuning a pretrained network: differences with 95 % intervals over seeds and test images, where a claim "
        "was made before the runs. A claim *held* if the whole interval lies in the range that it names, corrected "
        "for the number of claims:"
    )
    titles = (f"{METRICS[metric].title} (claimed: {_claimed(grid, metric)})" for metric in metrics)
    lines = ["| | " + " | ".join(titles) + " |", "| --- |" + " --- |" * len(metrics)]
    for pair, name in COMPARED.items():
        cells = (_difference_cell(found.get((pair, metric))) for metric in metrics)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    finished = len(list((CARDS / "study").glob(f"*/{RECORD_FILE}")))
    seeds = {int(row["n"]) for (pair, _), row in found.items() if pair in COMPARED}
    note = (
        f"{min(seeds)} seeds each. {finished} of {len(cells_of(grid))} runs of the study are finished; some claims "
        "about other data share the error rate of these, so verdicts may still change."
    )
    return "\n".join([text, "", *lines, "", f"{note} {_fashion(grid)}"])


def _fashion(grid: Grid) -> str:
    """The second dataset in a sentence."""
    groups = by_setting(load_runs(CARDS / "study"))
    rows = [row for row in settings_of(grid, "fashion") if row in groups]
    means = {metric: [estimated(groups, row, metric).mean for row in rows] for metric in ("mean15", "accuracy")}
    corrupted, clean = (
        ", ".join(f"{mean:.1f} % with `{row.label}`" for row, mean in zip(rows, means[metric], strict=True))
        for metric in ("mean15", "accuracy")
    )
    seeds = min(len(groups[row]) for row in rows)
    return f"Fashion-MNIST, {seeds} seeds: accuracy under corruption {corrupted}; on clean images {clean}."


def _claimed(grid: Grid, metric: str) -> str:
    """The range that every claim of the families about a metric names."""
    (claimed,) = {tuple(c["range"]) for c in grid.claims if c.get("family") in FAMILIES and c["metric"] == metric}
    low, high = claimed
    return f"above {low:g}" if high is None else f"below {high:g}"


def _difference_cell(row: dict[str, str] | None) -> str:
    return "-" if row is None else f"{numbers(row)}, {row['outcome']}"
