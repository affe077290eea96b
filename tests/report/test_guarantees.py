"""What a report of guarantees refuses to hold."""

import dataclasses
import math
from typing import Any

import pytest

from macs_hf.report.guarantees import AbstentionGuarantee, Guarantees, PredictionSetGuarantee, Share


SHARE = Share(0.9, 0.85, 0.94, 100)
SETS = PredictionSetGuarantee("lac", 0.9, 0.5, 200, SHARE, 1.2, (40, 50), {3: SHARE})
SURE = AbstentionGuarantee(0.95, 0.05, 200, 0.8, None, SHARE, SHARE)
ALL = Guarantees(300, 200, 100, 1.5, True, None, (45, 55), (), (SETS,), (SURE,))


@pytest.mark.parametrize(
    ("value", "changes", "message"),
    [
        (SHARE, {"value": 7.0}, r"value must be within \[0, 1\]"),
        (SHARE, {"low": math.nan}, "low must be a finite number"),
        (SHARE, {"value": 0.8}, r"value must lie within \[0.85, 0.94\]"),
        (SHARE, {"n": 0}, "n must be a whole number of at least 1"),
        (SETS, {"method": "aps"}, "method must be 'lac' or 'raps'"),
        (SETS, {"coverage": 1.0}, "coverage must lie between 0 and 1"),
        (SETS, {"threshold": math.inf}, "threshold must be a finite number"),
        (SETS, {"num_samples": -1}, "num_samples must be a whole number"),
        (SETS, {"mean_size": 2.5}, r"mean_size must be within \[0, 2\]"),
        (SETS, {"mean_size": math.nan}, "mean_size must be a finite number"),
        (SETS, {"class_covered": (40, -1)}, "class_covered must be a whole number"),
        (SURE, {"accuracy": 95}, "accuracy must lie between 0 and 1"),
        (SURE, {"delta": 0}, "delta must lie between 0 and 1"),
        (SURE, {"threshold": 1.5}, r"threshold must be within \[0, 1\]"),
        (SURE, {"threshold": None}, "reason must be given where there is no threshold"),
        (SURE, {"reason": "few"}, "reason must be given where there is no threshold, and only there"),
        (SURE, {"threshold": None, "reason": "few"}, "test_answered must be given only where there is a threshold"),
        (ALL, {"num_test": 99}, "class_counts must add up to num_test, 99, got 100"),
        (ALL, {"temperature": 0.0}, "temperature must be positive"),
        (ALL, {"num_guarantee": 0}, "reason must be given where num_guarantee is 0"),
        (ALL, {"num_temperature": 1.5}, "num_temperature must be a whole number"),
        (ALL, {"class_counts": (39, 61)}, "cover more images of a class than there are"),
        (ALL, {"class_names": ("cat",)}, "class_names must be as many as class_counts, 2"),
        (ALL, {"class_counts": (100,)}, "one entry of class_covered for each"),
    ],
)
def test_impossible_values_are_refused(value: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(value, **changes)
