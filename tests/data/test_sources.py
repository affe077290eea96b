"""A dataset is embedded, known by a name, a folder or a Hub id, or an error says why not."""

from pathlib import Path

import numpy as np
import pytest

from macs_hf.data.columns import labels_of
from macs_hf.data.sources import DATASETS, DatasetSource, source_of
from macs_hf.data.splits import load_splits

from .small_datasets import rows_of, saved, sizes, table


def test_digits() -> None:
    from sklearn.datasets import load_digits

    splits = load_splits(source_of("digits"))
    assert sizes(splits) == (1212, 135, 450)
    assert (splits.image_column, splits.label_column) == ("image", "label")
    assert splits.label_names == [str(digit) for digit in range(10)]
    scans = load_digits()
    stored = [row for split in splits[:3] for row in rows_of(split)]
    assert sorted(stored) == sorted(np.uint8(scan * (255 / 16)).tobytes() for scan in scans.images)
    for split in splits[:3]:
        shares = np.bincount(labels_of(split, "label")) / len(split)
        np.testing.assert_allclose(shares, np.bincount(scans.target) / 1797, atol=0.008)
    again = load_splits(source_of("digits"))
    for first, second in zip(splits[:3], again[:3], strict=True):
        assert rows_of(first) == rows_of(second)
        assert list(first["label"]) == list(second["label"])


def test_few_digits_are_the_same_scans_with_few_to_train_on() -> None:
    few, whole = (load_splits(source_of(name)) for name in ("few_digits", "digits"))
    assert sizes(few) == (300, 400, 1097)
    stored, expected = ([row for split in splits[:3] for row in rows_of(split)] for splits in (few, whole))
    assert sorted(stored) == sorted(expected)
    for split in few[:3]:
        np.testing.assert_allclose(np.bincount(labels_of(split, "label")) / len(split), 0.1, atol=0.008)


def test_the_table_of_datasets() -> None:
    assert {name for name, source in DATASETS.items() if not source.horizontal_flip} == {
        "digits",
        "few_digits",
        "svhn",
    }
    assert DATASETS["food101"].test_split == "validation"


def test_sources_by_name_by_id_and_overridden() -> None:
    assert source_of("cifar100").path == "uoft-cs/cifar100"
    assert source_of("cifar100", label_column="coarse_label").label_column == "coarse_label"
    assert source_of("cifar100", label_column="coarse_label").image_column == "img"
    assert source_of("someone/birds", "small", test_split="holdout") == DatasetSource(
        "someone/birds", "small", test_split="holdout"
    )


def test_a_local_folder_wins_over_a_name_and_a_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "digits", train=table([0, 1] * 20))
    assert load_splits(source_of("digits")).label_names == ["cat", "dog"]
    assert "folder 'digits' in the current directory is used, not the dataset" in warnings.text
    warnings.clear()
    assert load_splits(source_of("./digits")).label_names == ["cat", "dog"]
    assert "folder" not in warnings.text


def test_an_empty_name_is_not_the_current_folder() -> None:
    with pytest.raises(ValueError, match=r"dataset='' is empty: give a name \(digits, few_digits, cifar10, "):
        source_of("")


def test_a_file_is_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("image,label\n")
    with pytest.raises(ValueError, match=r"data\.csv' is a file. Give the folder"):
        load_splits(source_of(str(tmp_path / "data.csv")))
