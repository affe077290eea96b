"""Which split serves for what follows from names alone."""

from typing import Any

import pytest

from macs_hf.data.sources import DatasetSource
from macs_hf.data.split_plan import ROLES, SplitPlan, plan_splits


CALIBRATE, EVALUATE = ("validation", "test"), ("test",)


@pytest.mark.parametrize(
    ("names", "chosen", "wanted", "named", "split_off"),
    [
        (["train", "validation", "test"], {}, ROLES, "train validation test", ""),
        (["test", "extra", "train"], {}, ROLES, "train - test", "validation"),
        (["train"], {}, ROLES, "train - -", "test validation"),
        (["train", "validation"], {}, ROLES, "train validation -", "test"),
        (["train", "validation"], {"test_split": "validation"}, ROLES, "train - validation", "validation"),
        (["a", "b", "c"], {"train_split": "a", "validation_split": "b", "test_split": "c"}, ROLES, "a b c", ""),
        (["train", "test"], {}, EVALUATE, "- - test", ""),
        (["test"], {}, EVALUATE, "- - test", ""),
        (["train"], {}, EVALUATE, "train - -", "test"),
        (["train", "test"], {"test_split": "train"}, EVALUATE, "- - train", ""),
        (["validation"], {"test_split": "validation"}, EVALUATE, "- - validation", ""),
        (["validation", "test"], {}, CALIBRATE, "- validation test", ""),
        (["train", "test"], {}, CALIBRATE, "train - test", "validation"),
        (["train", "test"], {"validation_split": "train"}, CALIBRATE, "- train test", ""),
    ],
)
def test_plans(names: list[str], chosen: dict[str, str], wanted: tuple, named: str, split_off: str) -> None:
    plan = plan_splits(DatasetSource("d", **chosen), names, wanted)
    expected = {role: name for role, name in zip(ROLES, named.split(), strict=True) if name != "-"}
    assert (plan.named, plan.split_off) == (expected, tuple(split_off.split()))


@pytest.mark.parametrize(
    ("names", "chosen", "wanted", "message"),
    [
        (["test"], {}, ROLES, r"'d' has no split 'train' to train on, only \['test'\].*train_split=\.\.\."),
        (["train"], {"test_split": "tset"}, ROLES, r"no split 'tset' to test on, only \['train'\].*test_split="),
        (["train"], {"validation_split": "dev"}, ROLES, "no split 'dev' to validate on.*validation_split="),
        (["validation"], {}, EVALUATE, "no split 'test' to test on"),
        (["test"], {}, CALIBRATE, "has no validation split, and no split 'train' to split one off, only"),
        (["train", "test"], {"test_split": "train"}, ROLES, "train_split='train', test_split='train' must differ"),
        (["train", "test"], {"test_split": "train"}, CALIBRATE, "train_split='train', test_split='train' must differ"),
        (["test"], {"validation_split": "test"}, CALIBRATE, "validation_split='test', test_split='test' must differ"),
    ],
)
def test_plans_that_cannot_be(names: list[str], chosen: dict[str, str], wanted: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_splits(DatasetSource("d", **chosen), names, wanted)


@pytest.mark.parametrize(
    ("names", "chosen", "wanted", "words"),
    [
        (["train", "test"], {}, ROLES, []),  # training keeps them apart
        (["train", "test"], {}, EVALUATE, []),  # no temperature is fitted
        (["train"], {}, EVALUATE, ["a tenth of 'train' is used as the test set"]),
        (["train", "validation", "test"], {}, CALIBRATE, []),
        (["train", "test"], {}, CALIBRATE, ["fitted on a tenth of 'train'"]),
        (["train", "test"], {"validation_split": "train"}, CALIBRATE, ["fitted on 'train' of dataset"]),
        (["train"], {}, CALIBRATE, ["used as the test set", "fitted on a tenth"]),
    ],
)
def test_warnings_are_about_what_is_wanted(
    names: list[str], chosen: dict[str, Any], wanted: tuple, words: list[str]
) -> None:
    warnings = plan_splits(DatasetSource("d", **chosen), names, wanted).warnings
    assert len(warnings) == len(words)
    assert all(part in warning for part, warning in zip(words, warnings, strict=True))


def test_origins() -> None:
    plan = SplitPlan({"train": "learn", "test": "holdout"}, ("validation",))
    assert [plan.origin(role) for role in ROLES] == ["learn", "learn (a tenth, split off)", "holdout"]
