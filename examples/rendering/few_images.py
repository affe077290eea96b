"""What the runs with few images found, from their tables in model_cards."""

import csv

from reproduction.digest import claims_table, main_table
from reproduction.names import in_markdown
from reproduction.quantities import METRICS

from .differences import CARDS, claims_of, grid_of, noted, numbers, runs_of


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
    "The margin term lowers the confidence.": [
        ("macs", "ce", "confidence"),
        ("macs", "consistency_only", "confidence"),
    ],
    "Logits shrink; the paper says that they grow.": [("macs", "ce", "logit_norm")],
    "Its confidence ranks right above wrong answers less well than that of cross-entropy or MixUp (AURC, the mean "
    "share of wrong answers among the most confident ones).": [("macs", "ce", "aurc"), ("macs", "mixup", "aurc")],
}


def findings() -> str:
    """The decided and undecided differences between MaCS and the others, as a list."""
    claims = [row for row in claims_of("few_images") if row["model"] == "small" and int(row["n"]) > 2]
    return "\n".join(
        f"- {METRICS[row['metric']].title}, {in_markdown(row['pair'])}: {numbers(row)}; "
        f"{row['claim']}: **{row['outcome']}**"
        for row in claims
    )


def more() -> str:
    """What the rows say beyond the claims."""
    with (CARDS / "few_images" / "comparisons.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == "more"]
    found = {(row["setting"], row["minus"], row["metric"]): row | {"difference": row["value"]} for row in rows}
    return noted(MORE, lambda *pair: found[pair])


def few_images() -> str:
    """The runs with few images in short, with their figure and claims."""
    folder = CARDS / "few_images"
    grid, groups = grid_of("few_images"), runs_of("few_images")
    settings = grid.models["small"]
    text = (
        f"{grid.tables['core'].title}, {settings['num_train_epochs']} epochs; mean ± standard deviation over seeds. "
        f"Corruptions on {grid.settings['corruption_samples']} fixed test images, everything else on all 10,000:"
    )
    links = (
        f"All {sum(map(len, groups.values()))} runs: [tables with intervals](../model_cards/few_images/tables.md), "
        "[reports](../model_cards/few_images), [settings](../examples/configs/few_images.yaml)."
    )
    picture = "![Accuracy, robustness and cost of each method](../model_cards/few_images/methods.png)"
    return "\n\n".join([text, main_table(grid, "core", groups), picture, claims_table(folder), links])
