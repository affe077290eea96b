"""Corruption accuracy: means, families, mCE, and what is refused."""

import numpy as np
import pytest
import torch

from macs_hf.metrics import corruption_scores
from macs_hf.report.rows import CORRUPTIONS, FAMILIES, STANDARD_15


def table(errors: dict[str, int], severities: tuple[int, ...] = (1, 2, 3, 4, 5), n: int = 10) -> dict[str, list]:
    """Ten samples per cell, of which `errors[corruption]` are wrong at every severity."""
    cells = [(name, severity) for name in errors for severity in severities for _ in range(n)]
    predictions = [int(i < wrong) for wrong in errors.values() for _ in severities for i in range(n)]
    corruption, severity = map(list, zip(*cells, strict=True))
    return {"predictions": predictions, "references": [0] * len(cells), "corruption": corruption, "severity": severity}


def test_means_over_all_nineteen() -> None:
    errors = {name: i % 10 for i, name in enumerate(CORRUPTIONS)}
    scores = corruption_scores(**table(errors))
    accuracy = {name: 1 - wrong / 10 for name, wrong in errors.items()}
    assert scores["per_corruption"] == pytest.approx(accuracy)
    assert scores["mean15"] == pytest.approx(np.mean([accuracy[name] for name in STANDARD_15]))
    mean = float(np.mean(list(accuracy.values())))
    assert [scores["mean19"], scores["corruption_accuracy"]] == pytest.approx([mean, mean])
    families = {family: np.mean([accuracy[name] for name in members]) for family, members in FAMILIES.items()}
    assert scores["per_family"] == pytest.approx({family: families[family] for family in scores["per_family"]})
    assert families.keys() - scores["per_family"].keys() == {"extra"}
    assert list(scores["per_severity"]) == ["1", "2", "3", "4", "5"]
    assert "mce" not in scores


def test_mean_corruption_error() -> None:
    scores = corruption_scores(
        **table(dict.fromkeys(STANDARD_15, 2)), reference_errors=dict.fromkeys(STANDARD_15, 0.4) | {"fog": 0.1}
    )
    assert scores["mce"] == pytest.approx((14 * 0.5 + 2) / 15)
    columns = table({"fog": 3})
    arrays = {"predictions": torch.tensor(columns["predictions"]), "severity": np.array(columns["severity"])}
    assert corruption_scores(**columns | arrays) == corruption_scores(**columns)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"corruption": ["rain"] * 50}, "'rain'"),
        ({"severity": [0] * 50}, r"severity .*\[0\]"),
        ({"severity": [1] * 40 + [2] * 10, "corruption": ["fog"] * 40 + ["snow"] * 10}, "snow at severity 1"),
        ({"reference_errors": {"fog": 0.1}}, "reference_errors"),
        (table(dict.fromkeys(STANDARD_15, 2)) | {"reference_errors": dict.fromkeys(STANDARD_15, 88.6)}, "got 88.6"),
    ],
)
def test_errors(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        corruption_scores(**table({"fog": 3}) | change)
