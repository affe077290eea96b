"""Settings in words."""

import sys
from pathlib import Path

import pytest


sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from reproduction.grid import load_grid, settings_of
from reproduction.names import in_markdown, in_words


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("ce", "ce"),
        ("ce, corruptions=none, learning_rate=0.003", "ce, learning rate 0.003"),
        ("two_view_ce, consistency_fraction=0.25, perturbed_share=0.2", "two_view_ce, on a quarter, equal weights"),
        ("macs, noise_std=0.2", "macs, noise_std 0.2"),
        ("macs, consistency_fraction=0.5", "macs, consistency_fraction 0.5"),
    ],
)
def test_changes_are_words(label: str, words: str) -> None:
    assert in_words(label) == words


def test_a_difference_has_the_methods_as_code() -> None:
    pair = "macs, num_train_epochs=16 minus ce, num_train_epochs=16"
    assert in_markdown(pair) == "`macs`, 16 epochs minus `ce`, 16 epochs"


@pytest.mark.parametrize("name", ["study", "few_images"])
def test_no_two_rows_of_a_table_read_the_same(name: str) -> None:
    grid = load_grid(ROOT / "examples" / "configs" / f"{name}.yaml")
    for table in grid.tables:
        rows = [(row.dataset, row.model, in_words(row.label)) for row in settings_of(grid, table)]
        assert len(set(rows)) == len(rows), table
