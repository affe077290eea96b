"""Corruption accuracy: means, families, mCE, and what is refused."""

import numpy as np
import pytest
import torch

from macs_hf.metrics import corruption_scores
from macs_hf.report.corruption_names import CORRUPTIONS, FAMILIES, STANDARD_15


def table(errors: dict[str, int], severities: tuple[int, ...] = (1, 2, 3, 4, 5), n: int = 10) -> dict[str, list]:
    """Ten samples per cell, of which `errors[corruption]` are wrong at every severity."""
    columns = {"predictions": [], "references": [], "corruption": [], "severity": []}
    for name, wrong in errors.items():
        for severity in severities:
            columns["predictions"] += [1] * wrong + [0] * (n - wrong)
            columns["references"] += [0] * n
            columns["corruption"] += [name] * n
            columns["severity"] += [severity] * n
    return columns


def test_means_over_all_nineteen() -> None:
    errors = {name: i % 10 for i, name in enumerate(CORRUPTIONS)}
    scores = corruption_scores(**table(errors))
    accuracy = {name: 1 - wrong / 10 for name, wrong in errors.items()}
    assert scores["per_corruption"] == pytest.approx(accuracy)
    assert scores["mean15"] == pytest.approx(np.mean([accuracy[name] for name in STANDARD_15]))
    mean = float(np.mean(list(accuracy.values())))
    assert [scores["mean19"], scores["corruption_accuracy"]] == pytest.approx([mean, mean])
    assert scores["per_family"] == pytest.approx(
        {
            family: np.mean([accuracy[name] for name in members])
            for family, members in FAMILIES.items()
            if family != "extra"
        }
    )
    assert list(scores["per_severity"]) == ["1", "2", "3", "4", "5"]
    assert "mce" not in scores


def test_cells_weigh_the_same_whatever_their_size() -> None:
    small, large = table({"fog": 10}, (1,), n=10), table({"snow": 0}, (1,), n=90)
    scores = corruption_scores(**{name: small[name] + large[name] for name in small})
    assert scores["corruption_accuracy"] == 0.5
    assert scores["mean15"] is None and scores["mean19"] is None and scores["per_family"] == {}


def test_mean_corruption_error() -> None:
    scores = corruption_scores(
        **table(dict.fromkeys(STANDARD_15, 2)), reference_errors=dict.fromkeys(STANDARD_15, 0.4) | {"fog": 0.1}
    )
    assert scores["mce"] == pytest.approx((14 * 0.5 + 2) / 15)


def test_tensors_and_arrays() -> None:
    columns = table({"fog": 3})
    arrays = {
        "predictions": torch.tensor(columns["predictions"]),
        "references": np.array(columns["references"]),
        "corruption": np.array(columns["corruption"]),
        "severity": torch.tensor(columns["severity"]),
    }
    assert corruption_scores(**arrays) == corruption_scores(**columns)


@pytest.mark.parametrize("error", [0.0, 88.6])
def test_reference_errors_are_fractions_above_0(error: float) -> None:
    with pytest.raises(ValueError, match=f"fractions above 0, 1 - accuracy, got {error} for fog"):
        corruption_scores(
            **table(dict.fromkeys(STANDARD_15, 2)), reference_errors=dict.fromkeys(STANDARD_15, 0.4) | {"fog": error}
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"corruption": ["rain"] * 50}, "unknown corruption 'rain'"),
        ({"severity": [0] * 50}, r"severity must be 1 to 5, got \[0\]"),
        ({"severity": [1] * 49}, "one entry per sample"),
        (
            {"severity": [1] * 40 + [2] * 10, "corruption": ["fog"] * 40 + ["snow"] * 10},
            "no sample of snow at severity 1",
        ),
        ({"reference_errors": {"fog": 0.1}}, "mCE needs all 15"),
    ],
)
def test_errors(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        corruption_scores(**table({"fog": 3}) | change)
