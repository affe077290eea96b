"""Which of a dataset's splits serve as train, validation and test, and what is split off train: decided from names."""

from collections.abc import Sequence
from dataclasses import dataclass

from .sources import DatasetSource


ROLES = ("train", "validation", "test")


@dataclass(frozen=True)
class SplitPlan:
    """
    What each role is made from.

    Args:
        named (`dict[str, str]`):
            The split of the dataset that serves each role; `train` is here too if another role is split off it.
        split_off (`tuple[str, ...]`):
            Roles that get a share of train, in the order in which they are split off.
        warnings (`tuple[str, ...]`):
            What the user should know about these choices.
    """

    named: dict[str, str]
    split_off: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def origin(self, role: str) -> str:
        """Where the rows of a role come from, for reports."""
        return f"{self.named['train']} (a tenth, split off)" if role in self.split_off else self.named[role]


def plan_splits(source: DatasetSource, names: Sequence[str], wanted: Sequence[str] = ROLES) -> SplitPlan:
    """
    Plan the splits so that neither a temperature nor the choice of a model ever sees test.

    Args:
        source ([`DatasetSource`]): Names the splits that the user chose.
        names (`Sequence[str]`): The splits that the dataset has.
        wanted (`Sequence[str]`, *optional*, defaults to all three): The roles that are needed; test always is.

    Raises:
        `ValueError`: If a split that was named is missing, or one split would have two roles.
    """
    if "train" in wanted and source.train_split not in names:
        raise ValueError(_missing(source, names, source.train_split, "train on", "train_split"))
    validation = None
    if "validation" in wanted:
        validation = source.validation_split or _usual_validation(source, names)
        if validation not in (None, *names):
            raise ValueError(_missing(source, names, validation, "validate on", "validation_split"))
    test = source.test_split if source.test_split in names else None
    if test is None and (source.test_split != "test" or source.train_split not in names):
        raise ValueError(_missing(source, names, source.test_split, "test on", "test_split"))
    if validation is None and "validation" in wanted and source.train_split not in names:
        raise ValueError(
            f"Dataset {source.path!r} has no validation split, and no split {source.train_split!r} to split one off, "
            f"only {sorted(names)}. Name one with validation_split=..."
        )

    chosen = {"validation": validation, "test": test}
    split_off = tuple(role for role in ("test", "validation") if role in {*wanted, "test"} and chosen[role] is None)
    named = {"train": source.train_split} if "train" in wanted or split_off else {}
    named |= {role: name for role, name in chosen.items() if name is not None}
    if len(set(named.values())) < len(named):
        listed = ", ".join(f"{role}_split={name!r}" for role, name in named.items())
        raise ValueError(
            f"Dataset {source.path!r}: {listed} must differ, or the model is tested on what it has seen. Choose other "
            "splits, or leave validation_split out to have it split off train."
        )
    return SplitPlan(named, split_off, tuple(_warnings(source, named, split_off, wanted)))


def _usual_validation(source: DatasetSource, names: Sequence[str]) -> str | None:
    taken = (source.train_split, source.test_split)
    return "validation" if "validation" in names and "validation" not in taken else None


def _missing(source: DatasetSource, names: Sequence[str], split: str, purpose: str, argument: str) -> str:
    return (
        f"Dataset {source.path!r} has no split {split!r} to {purpose}, only {sorted(names)}. Name one with "
        f"{argument}=..."
    )


def _warnings(
    source: DatasetSource, named: dict[str, str], split_off: Sequence[str], wanted: Sequence[str]
) -> list[str]:
    warnings = []
    if "test" in split_off:
        warnings.append(
            f"Dataset {source.path!r} has no split {source.test_split!r}: a tenth of {source.train_split!r} is used "
            "as the test set."
        )
    # Training keeps these rows apart; a model that comes from elsewhere may have been trained on them.
    if "train" not in wanted and ("validation" in split_off or named.get("validation") == source.train_split):
        part = f"a tenth of {source.train_split!r}" if "validation" in split_off else repr(source.train_split)
        warnings.append(
            f"The temperature is fitted on {part} of dataset {source.path!r}. A model that was trained on those rows "
            "will look better calibrated there than it is: name a split that it has not seen with validation_split=..."
        )
    return warnings
