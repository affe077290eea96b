"""Images that are in two splits at once, found by the hashes of their decoded pixels."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from ..report.leakage import Copies, Leakage
from .images import ImageDataset


# Training images that are not kept in memory: so many, spread evenly, are decoded only to be compared.
COMPARED_AT_MOST = 2000


def hash_training_images(dataset: Any) -> None:
    """
    Read training images once, so that [`find_leakage`] can compare them: all of them if they are kept in memory, where
    training finds them decoded, and else at most 2,000. Streams are left alone.
    """
    if isinstance(dataset, ImageDataset):
        dataset.check_images(COMPARED_AT_MOST)


def find_leakage(splits: Mapping[str, Any]) -> Leakage | None:
    """
    Count exact copies between splits.

    Args:
        splits (`Mapping[str, Any]`): The datasets by name, such as `train`, `validation` and `test`, in that order.
            Only those are compared whose images were read ([`ImageDataset.check_images`]).

    Returns:
        [`Leakage`], or `None` if fewer than two splits can be compared.
    """
    read = {name: split for name, split in splits.items() if isinstance(split, ImageDataset) and split.hashes}
    if len(read) < 2:
        return None
    known = {name: set(split.hashes.values()) for name, split in read.items()}
    return Leakage(
        compared={name: len(split.hashes) for name, split in read.items()},
        total={name: len(split) for name, split in read.items()},
        copies=tuple(
            Copies(name, other, sum(number in known[other] for number in read[name].hashes.values()))
            for other, name in combinations(read, 2)
        ),
    )


def leakage_line(leakage: Leakage) -> str:
    """What was found, in one line."""
    found = [
        f"{pair.count:,} of {leakage.compared[pair.split]:,} {pair.split} images are also in {pair.other}"
        for pair in leakage.found
    ]
    names = list(leakage.compared)
    between = f"{', '.join(names[:-1])} and {names[-1]}"
    line = f"exact copies between {between}: {'; '.join(found) or 'none'}"
    parts = [
        f"{count:,} of {leakage.total[name]:,} {name} images"
        for name, count in leakage.compared.items()
        if count < leakage.total[name]
    ]
    return line + (f" (compared were {' and '.join(parts)})" if parts else "")
