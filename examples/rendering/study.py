"""What the study and the search found, from their tables in model_cards."""

import json
from statistics import fmean
from typing import Any

from reproduction.aggregate import difference, estimate, of_table
from reproduction.digest import claims_table, main_table
from reproduction.grid import Setting, cells_of, settings_of
from reproduction.names import in_markdown
from reproduction.quantities import METRICS, Run

from macs_hf.report.corruption_names import CORRUPTIONS, STANDARD_15

from .differences import (
    APPENDED,
    CARDS,
    CONTROL,
    Row,
    accuracy_by_corruption,
    claims_of,
    grid_of,
    noted,
    numbers,
    runs_of,
)


SCORES = ("nll", "corrupted_nll", "score")
NOTED = {
    "On corrupted images the confidence of `macs` exceeds its accuracy by far less than that of `ce`.": [
        ("macs", "ce", "corrupted_gap")
    ],
    "Its confidence ranks right above wrong answers better than that of `ce` and, a little, than that of its control "
    "(AURC, the mean share of wrong answers among the most confident ones).": [
        ("macs", "ce", "aurc"),
        ("macs", "ce", "excess_aurc"),
        ("macs", "two_view_ce", "aurc"),
    ],
    "Under corruption, consistency without the margin term is better than `macs`.": [
        ("consistency_only", "macs", "mean15"),
        ("consistency_only", "macs", "corrupted_nll"),
    ],
    "On clean images, consistency without the margin term gives better probabilities than the control, and a better "
    "ranking; under corruption the two may be equal.": [
        ("consistency_only", "two_view_ce", "nll_after"),
        ("consistency_only", "two_view_ce", "aurc"),
        ("consistency_only", "two_view_ce", "mean15"),
        ("consistency_only", "two_view_ce", "corrupted_nll"),
    ],
    "On clean images and after the temperature, calibration does not differ beyond chance.": [
        ("macs", "ce", "debiased_ece_after")
    ],
    "Frost, which is approximated here, does not decide anything: without it the gain is nearly the same.": [
        ("macs", "ce", "no_frost")
    ],
    "Confidence falls and logits shrink; the paper says that logits grow.": [
        ("macs", "ce", "confidence"),
        ("macs", "ce", "logit_norm"),
    ],
    "Consistency on every image is more accurate on clean images than `recommended`; under corruption the two may be "
    "equal.": [
        ("consistency_only", "recommended", "accuracy"),
        ("consistency_only", "recommended", "mean15"),
    ],
    "On clean images AugMix has the best probabilities and may be the most accurate, in 3 times the time of a step of "
    "`ce`; under corruption its probabilities are worse than those of `macs`.": [
        ("augmix", "macs", "accuracy"),
        ("augmix", "macs", "nll_after"),
        ("augmix", "macs", "mean15"),
        ("augmix", "macs", "corrupted_nll"),
    ],
    "On clean images `macs` is more accurate than `recommended`, at a higher cost. Its accuracy would also have "
    "passed a margin of half a point; that of `recommended` would not.": [
        ("macs", "recommended", "accuracy"),
        ("macs", "ce", "accuracy"),
    ],
}


def table(name: str) -> str:
    """A table of the study: means and standard deviations over seeds."""
    return main_table(grid_of("study"), name, runs_of("study"), grid_of("study").tables[name].columns)


def finetuning() -> str:
    """The main table and the picture of it."""
    found, planned = sum(map(len, runs_of("study").values())), len(cells_of(grid_of("study")))
    runs = f"The study has {planned} runs." if found == planned else f"{found} of {planned} runs are finished."
    text = f"{runs} {grid_of('study').tables['finetuning'].title}; means ± standard deviations over seeds:"
    picture = "![Accuracy, robustness and likelihood of each method](../model_cards/study/methods.png)"
    return "\n\n".join([text, table("finetuning"), picture])


def corruptions() -> str:
    """Families as a picture, each corruption as a number."""
    picture = "![Accuracy under noise, blur, weather and digital corruptions](../model_cards/study/families.png)"
    text = (
        "Accuracy under each corruption, %, mean over severities and seeds. Each row has test images of its own, "
        "about 526, so compare numbers within a row only; differences below about 3 points may be chance:"
    )
    return "\n\n".join([picture, text, by_corruption()])


def longer() -> str:
    """Which length suits cross-entropy, and what the others do with it."""
    titles = {name: grid_of("study").tables[name].title for name in ("tuning", "longer")}
    return "\n\n".join(part for name, title in titles.items() for part in (f"{title}:", table(name)))


def claims() -> str:
    """What could have been seen, and what became of each claim."""
    return "\n\n".join([power(), claims_table(CARDS / "study")])


def by_corruption() -> str:
    """Which corruptions a method helps with."""
    grid, groups = grid_of("study"), of_table(grid_of("study"), "finetuning", runs_of("study"))
    shown = ("ce", "two_view_ce", "macs", "consistency_only", "recommended", APPENDED)
    means = {row.label: accuracy_by_corruption(groups[row]) for row in settings_of(grid, "finetuning")}
    rows = ["| corruption | " + " | ".join(map(in_markdown, shown)) + " |", "| --- |" + " --- |" * len(shown)]
    for name in STANDARD_15:
        rows.append(
            f"| {name.replace('_', ' ')} | " + " | ".join(f"{means[label][name]:.1f}" for label in shown) + " |"
        )
    return "\n".join(rows)


def conditions() -> str:
    """What the recipe that the search chose had to show on other seeds, and what became of it."""
    # Step times of the study's network; the others are among all claims.
    timed = grid_of("study").figures["methods"]["cost"]["model"]
    claims = [row for row in claims_of("study") if row["pair"].startswith("recommended ")]
    rows = ["| condition | found | outcome |", "| --- | --- | --- |"]
    for row in claims:
        if row["metric"] == "overhead" and row["model"] != timed:
            continue
        where = f" ({row['model']})" if row["metric"] == "overhead" else ""
        pair = "" if where else f", {in_markdown(row['pair'])}"
        found = f"{METRICS[row['metric']].title}{where}{pair}: {numbers(row)}"
        rows.append(f"| {row['claim']} | {found} | {row['outcome']} |")
    text = "**What `recommended` has to show**, on seeds that the search did not use:"
    return "\n".join([text, "", *rows])


def power() -> str:
    """The smallest difference that the runs could have told from 0: half of each interval."""
    pairs = {
        ("macs minus ce", "5"): "`macs` and `ce`",
        ("macs minus two_view_ce", "5"): "`macs` and its control",
        (f"recommended minus {CONTROL}", "5"): "`recommended` and its control",
        (f"recommended minus {APPENDED}", "5"): "`recommended` and its control with equal weights",
        (f"recommended minus {APPENDED}", "10"): "the same two",
    }
    claims = (row for row in claims_of("study") if row["dataset"] == "cifar10")
    found = {(row["pair"], row["metric"], row["n"]): row for row in claims}
    metrics = ("accuracy", "mean15", "nll_after", "corrupted_nll")
    titles = (METRICS[name].title for name in metrics)
    rows = ["| difference between | seeds | " + " | ".join(titles) + " |", "| --- | --- |" + " --- |" * len(metrics)]
    for (pair, seeds), text in pairs.items():
        cells = []
        for name in metrics:
            row = found.get((pair, name, seeds))
            half = None if row is None else (float(row["high"]) - float(row["low"])) / 2
            cells.append("-" if half is None else f"{half:.{METRICS[name].decimals}f}")
        if set(cells) != {"-"}:
            rows.append(f"| {text} | {seeds} | " + " | ".join(cells) + " |")
    text = (
        "**What could have been seen**: half of the width of the 95 % intervals. A true difference of this size would "
        "be told from 0 in about every second study like this one, before the correction for several claims."
    )
    return "\n".join([text, "", *rows])


def more() -> str:
    """What the rows say beyond the claims."""
    grid, groups = grid_of("study"), of_table(grid_of("study"), "finetuning", runs_of("study"))
    rows = {row.label: row for row in settings_of(grid, "finetuning")}

    def find(a: str, b: str, metric: str) -> Row:
        found = difference(groups, rows[a], rows[b], metric)
        return {"metric": metric, "difference": found.value, "low": found.low, "high": found.high}

    return noted(NOTED, find)


def search() -> str:
    """What the search tried last, and what it chose."""
    found = json.loads((CARDS / "study" / "search.json").read_text())
    last = found["rounds"][-1]
    text = (
        f"{found['rounds'][0]['candidates']} candidates, {found['hours']:.1f} core-hours. The last round, "
        f"{last['epochs']} epochs each, on 1,000 validation images, NLL after the temperature:"
    )
    return "\n".join([text, "", *_trials(found, ("lambda_consistency", "lambda_margin", "mixup_alpha", "noise_std"))])


def second_search() -> str:
    """Whether the sum of consistency and cross-entropy on the perturbed images is better than either."""
    found = json.loads((CARDS / "study" / "search_both.json").read_text())
    text = f"{found['hours']:.1f} core-hours; the same images, seeds and score:"
    tested = {run.seed: _score(run) for run in runs_of("study")[_setting("recommended")]}
    differences = [tested[run.seed] - _score(run) for run in runs_of("study")[_setting(APPENDED)]]
    test = estimate(differences)
    note = (
        f"The same score on the test images, {in_markdown(f'recommended minus {APPENDED}')}, {test.n} seeds: "
        f"{test.mean:+.3f} [{test.mean - test.half:+.3f}, {test.mean + test.half:+.3f}]."
    )
    return "\n".join([text, "", *_trials(found, ("lambda_consistency",)), "", note])


def _setting(label: str) -> Setting:
    """One of the table of ten seeds."""
    return next(row for row in settings_of(grid_of("study"), "more_seeds") if row.label == label)


def _score(run: Run) -> float:
    """What the search minimises, on the test images of a run."""
    cells = (run.report.corruptions.cells[name].values() for name in CORRUPTIONS if name not in STANDARD_15)
    corrupted = fmean(cell.scaled_nll for of_name in cells for cell in of_name)
    return (run.report.after.metrics["nll"].value + corrupted) / 2


def _trials(found: dict[str, Any], shown: tuple[str, ...]) -> list[str]:
    """The last round of a search, with the settings that its candidates differ in."""
    words = {"lambda_consistency": "consistency", "lambda_margin": "margin", "mixup_alpha": "MixUp"}
    words |= {"noise_std": "noise"}
    rows = ["| candidate | seed | accuracy, % | NLL | NLL, extra corruptions | score |", "| --- |" + " --- |" * 5]
    for trial in found["trials"]:
        if trial["epochs"] == found["rounds"][-1]["epochs"]:
            name = ", ".join(f"{words[key]} {trial['settings'][key]:g}" for key in shown)
            name += f" ({trial['settings']['perturbation_space']})" if "noise_std" in shown else ""
            part = trial["last"]
            numbers = [f"{100 * part['accuracy']:.1f}", *(f"{part[key]:.3f}" for key in SCORES)]
            rows.append(f"| {name} | {trial['seed']} | " + " | ".join(numbers) + " |")
    return rows
