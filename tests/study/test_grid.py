"""Grids: the cells of tables, their names, and what they refuse."""

import doctest
from pathlib import Path

import pytest
import yaml
from reproduction import grid as grid_module
from reproduction.grid import cells_of, expand, load_grid, name_of, setting, settings_of, shard_of
from reproduction.tables import load_paper


EXAMPLES = Path(__file__).parents[2] / "examples"
PAPER, FEW_IMAGES = EXAMPLES / "reproduction" / "grid.yaml", EXAMPLES / "configs" / "few_images.yaml"
TINY = {
    "name": "little",
    "settings": {"max_train_samples": 64, "max_steps": 2, "per_device_train_batch_size": 32, "eval_strategy": "no"}
    | {"corruptions": "none", "disable_tqdm": True},
    "datasets": {"digits": {"dataset": "digits"}},
    "models": {"tiny": {"model": "tiny"}},
    "seeds": [0, 1],
    "tables": {
        "both": {
            "title": "Both",
            "columns": ["accuracy", "ece", "nll_after", "margin", "overhead"],
            "versus": "macs",
            "cells": [{"dataset": "digits", "model": "tiny", "method": ["ce", "macs"]}],
        }
    },
    "claims": [{"claim": "MaCS improves accuracy", "metric": "accuracy", "method": "macs", "range": [0, None]}],
}


def grid_file(folder: Path, **changes: object) -> Path:
    path = folder / "grid.yaml"
    path.write_text(yaml.safe_dump(TINY | changes))
    return path


def test_tables_of_the_paper_have_the_cells_they_need() -> None:
    grid, paper = load_grid(PAPER), load_paper(PAPER.with_name("paper.yaml"))
    counts = [len(cells_of(grid, [name], [0])) for name in grid.tables]
    assert counts == [10, 210, 6, 10, 6, 40, 5, 4, 8, 36, 8, 2, 12, 9, 5]
    everything = cells_of(grid)
    assert len({cell.name for cell in everything}) == len(everything) == 3 * 297
    parts = [shard_of(everything, f"{i}/4") for i in range(1, 5)]
    assert sorted(cell.name for part in parts for cell in part) == sorted(cell.name for cell in everything)
    # Every number of the paper stands in a row and column of its table, so none is missed by a typing error.
    known = {name: set(settings_of(grid, name)) for name in grid.tables}
    assert all(key in known[table] and metric in grid.tables[table].columns for table, key, metric in paper.numbers)
    assert paper.numbers["main", setting("cifar10", "resnet50", "macs"), "accuracy"] == (91.10, 0.55)
    assert (
        paper.numbers["data_efficiency", setting("cifar10", "resnet50", "ce", data_fraction=0.1), "accuracy"][0]
        == 73.1
    )


def test_equal_runs_are_one_cell() -> None:
    assert setting("cifar10", "tiny", "macs", margin=1.0, data_fraction=1.0) == setting("cifar10", "tiny", "macs")
    assert setting("cifar10", "tiny", "recommended", perturbation_space="pixel").changes == ()
    grid = load_grid(FEW_IMAGES)
    whole, few = ({cell.setting for cell in cells_of(grid, [name])} for name in ("core", "data_efficiency"))
    assert (len(few), len(few - whole)) == (4, 2)  # 2,000 images is what the model's flags say anyway


@pytest.mark.parametrize("path", [PAPER, FEW_IMAGES, FEW_IMAGES.with_name("study.yaml")])
def test_no_two_rows_of_a_table_have_one_name(path: Path) -> None:
    grid = load_grid(path)
    for table in grid.tables:
        rows = [(*row[:2], name_of(row.label)) for row in settings_of(grid, table)]
        assert len(set(rows)) == len(rows), table
    assert doctest.testmod(grid_module).failed == 0


def test_an_entry_is_a_claim_for_each_phrase_that_it_says(tmp_path: Path) -> None:
    phrases = [
        {"metric": "accuracy", "range": [0, None], "said": ["is right"]},
        {"metric": "ece", "range": [None, -1], "said": ["is sure", "knows"]},
    ]
    entries = [{"family": "f", "claim": "MaCS {}", "says": ["knows", "is right"], "method": "macs"}, *TINY["claims"]]
    first, second, third = load_grid(grid_file(tmp_path, phrases=phrases, claims=entries)).claims
    assert first == {"family": "f", "claim": "MaCS knows", "metric": "ece", "range": [None, -1], "method": "macs"}
    assert second == first | {"claim": "MaCS is right", "metric": "accuracy", "range": [0, None]}
    assert [third] == TINY["claims"]


def test_what_is_unknown_or_unset_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MACS_HF_ASSETS", raising=False)
    wrong = TINY["tables"]["both"] | {"cells": [{"dataset": "digits", "model": "tiny", "method": "sgd"}]}
    for call, named in (
        (lambda: expand("${MACS_HF_ASSETS}/cifar10"), "MACS_HF_ASSETS"),
        (lambda: cells_of(load_grid(PAPER), ["mian"]), "mian"),
        (lambda: cells_of(load_grid(grid_file(tmp_path)), seeds=[99]), "99"),
        (lambda: cells_of(load_grid(grid_file(tmp_path, tables={"both": wrong}))), "sgd"),
        (lambda: load_grid(grid_file(tmp_path, colour="red")), "colour"),
        (lambda: load_grid(grid_file(tmp_path, keep_rows=["digits-tiny-nothing"])), "digits-tiny-nothing"),
        (lambda: load_grid(grid_file(tmp_path, claims=[{"claim": "MaCS {}", "says": ["sings"]}])), "sings"),
        (lambda: shard_of([], "5/4"), "shard"),
    ):
        with pytest.raises(ValueError, match=named):
            call()
