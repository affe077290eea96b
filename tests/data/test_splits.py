"""A dataset becomes three splits without common rows, or an error says why not."""

from pathlib import Path

import numpy as np
import pytest
from datasets import ClassLabel, Value

from macs_hf.data.columns import labels_of
from macs_hf.data.sources import DATASETS, DatasetSource, source_of
from macs_hf.data.splits import class_balanced_subset, load_splits, split_off

from .small_datasets import picture, rows_of, saved, sizes, table


def test_given_splits_are_kept_and_extra_ones_ignored(tmp_path: Path) -> None:
    source = saved(
        tmp_path,
        train=table([0, 1] * 10),
        validation=table([0, 1] * 3, start=100),
        test=table([1, 0] * 2, start=200),
        extra=table([-1] * 50, start=300),
    )
    splits = load_splits(source)
    assert sizes(splits) == (20, 6, 4)
    assert splits.test["label"] == [1, 0, 1, 0]


def test_a_validation_split_is_split_off_stratified_and_without_common_rows(tmp_path: Path) -> None:
    source = saved(tmp_path, train=table([0, 0, 0, 1] * 20), test=table([0, 1], start=200))
    splits = load_splits(source)
    assert sizes(splits) == (72, 8, 2)
    assert np.bincount(labels_of(splits.validation, "label")).tolist() == [6, 2]
    assert set(rows_of(splits.train)) | set(rows_of(splits.validation)) == {
        np.asarray(picture(i)).tobytes() for i in range(80)
    }
    assert rows_of(load_splits(source).validation) == rows_of(splits.validation)


def test_a_missing_test_split_is_split_off_first(tmp_path: Path, warnings: pytest.LogCaptureFixture) -> None:
    splits = load_splits(saved(tmp_path, train=table([0, 1] * 50)))
    assert sizes(splits) == (81, 9, 10)
    assert "no split 'test': a tenth of 'train' is used as the test set" in warnings.text
    assert len({row for split in splits[:3] for row in rows_of(split)}) == 100


def test_only_what_is_wanted_is_prepared_and_complained_about(
    tmp_path: Path, warnings: pytest.LogCaptureFixture
) -> None:
    source = saved(tmp_path, train=table([1] * 40), test=table([0, 1] * 3, start=100))  # train cannot be learned from
    splits = load_splits(source, wanted=("test",))
    assert (splits.train, splits.validation, len(splits.test)) == (None, None, 6)
    assert not warnings.records
    splits = load_splits(source, wanted=("validation", "test"))
    assert (splits.train, len(splits.validation), splits.validation_name) == (None, 4, "train (a tenth, split off)")
    assert "trained on those rows will look better calibrated" in warnings.text


def test_classes_without_names_are_numbered_as_for_training_whatever_is_wanted(tmp_path: Path) -> None:
    words = Value("string")
    train, test = table(["ant", "bee", "cat"] * 10, words), table(["cat", "bee"], words, start=100)
    splits = load_splits(saved(tmp_path, train=train, test=test), wanted=("test",))
    assert splits.label_names == ["ant", "bee", "cat"]
    assert list(splits.test["label"]) == [2, 1]


def test_splits_with_other_columns(tmp_path: Path) -> None:
    train, test = table([0, 1] * 10), table([0, 1], start=100)
    source = saved(tmp_path / "a", train=train, test=test.rename_column("image", "picture"))
    with pytest.raises(ValueError, match=r"Split 'test' of .* has no column 'image', only \['picture', 'label'\]"):
        load_splits(source)
    source = saved(tmp_path / "b", train=train, test=test.remove_columns("image").add_column("image", ["x", "y"]))
    with pytest.raises(ValueError, match=r"'image' in split 'test' of .* holds Value\('string'\), not images"):
        load_splits(source)


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("README.md", "---\nconfigs: [\n---\n", "while parsing"),
        ("train/metadata.csv", "file_name,label\n0.png\n1.png,2,3,4\n", "cannot be loaded"),
        ("script.py", "import datasets\n", "cannot be loaded: Dataset scripts are no longer supported"),
    ],
)
def test_broken_datasets_are_refused_in_a_sentence(file: str, text: str, reason: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for label in ("cat", "dog"):
        (folder / "train" / label).mkdir(parents=True)
        picture(3).save(folder / "train" / label / "0.png")
    if file.endswith(".py"):
        folder = tmp_path / "script"
        folder.mkdir()
    (folder / file).write_text(text)
    with pytest.raises((ValueError, OSError), match=reason) as caught:
        load_splits(source_of(str(folder)))
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_a_dataset_saved_without_splits_is_its_train_split(tmp_path: Path) -> None:
    table([0, 1] * 50).save_to_disk(tmp_path / "data")
    assert sizes(load_splits(DatasetSource(str(tmp_path / "data")))) == (81, 9, 10)


def test_the_layout_of_food101(tmp_path: Path) -> None:
    source = saved(tmp_path, train=table([0, 1] * 20), validation=table([0, 1] * 5, start=100))
    splits = load_splits(source_of(source.path, test_split=DATASETS["food101"].test_split))
    assert sizes(splits) == (36, 4, 10)
    assert set(rows_of(splits.test)) == {np.asarray(picture(100 + i)).tobytes() for i in range(10)}


def test_splitting_off_where_a_class_is_too_rare_to_be_split() -> None:
    rest, part = split_off(table([0] * 19 + [1]), "label", 0.1)
    assert (len(rest), len(part)) == (18, 2)


@pytest.mark.parametrize(
    ("labels", "has_test", "message"),
    [
        ([0], True, r"Split 'train' .* has 1 images, too few to split off validation\..*validation_split=\.\.\."),
        ([0, 1], False, r"Split 'train' .* has 2 images, too few to split off test and validation"),
        ([0, 1, 0], False, r"All 1 training images of .*, which splitting off test and validation left, are of class"),
    ],
)
def test_too_few_images_to_split(labels: list[int], has_test: bool, message: str, tmp_path: Path) -> None:
    test = {"test": table([0, 1], start=100)} if has_test else {}
    with pytest.raises(ValueError, match=message):
        load_splits(saved(tmp_path, train=table(labels), **test))


def test_the_origin_of_the_validation_rows_is_kept(tmp_path: Path) -> None:
    part = load_splits(saved(tmp_path / "a", train=table([0, 1] * 20), test=table([0, 1], start=100)))
    assert part.validation_name == "train (a tenth, split off)"
    own = saved(tmp_path / "b", train=table([0, 1]), validation=table([0, 1], start=50), test=table([0, 1], start=100))
    assert load_splits(own).validation_name == "validation"


# ---- Subsets ----


@pytest.mark.parametrize("size", [1, 7, 40, 99, 100])
def test_a_subset_keeps_the_shares_of_the_classes(size: int) -> None:
    labels = [0] * 50 + [1] * 30 + [2] * 20
    data = table(labels, ClassLabel(names=["a", "b", "c"]))
    subset = class_balanced_subset(data, "label", size, seed=0)
    assert len(subset) == size == len(set(rows_of(subset)))
    counts = np.bincount(labels_of(subset, "label"), minlength=3)
    assert np.abs(counts - size * np.array([0.5, 0.3, 0.2])).max() <= 1


def test_subsets_depend_on_the_seed_alone() -> None:
    data = table([0, 1] * 50)
    first, again, other = (rows_of(class_balanced_subset(data, "label", 20, seed)) for seed in (0, 0, 1))
    assert first == again
    assert set(first) != set(other)
    # A larger subset holds the smaller one, so that learning curves add data and never exchange it.
    assert set(first) < set(rows_of(class_balanced_subset(data, "label", 40, 0)))


@pytest.mark.parametrize("size", [0, -3, 101])
def test_subsets_that_cannot_be(size: int) -> None:
    with pytest.raises(ValueError, match=f"subset of {size} rows was asked for, but the training set has 100"):
        class_balanced_subset(table([0, 1] * 50), "label", size, 0)


# ---- Folders of images ----


def test_a_folder_of_images(tmp_path: Path) -> None:
    for split, count in (("train", 12), ("test", 2)):
        for label, suffix in (("cat", "png"), ("dog", "jpg")):
            folder = tmp_path / split / label
            folder.mkdir(parents=True)
            for i in range(count):
                picture(16 * i).save(folder / f"{i}.{suffix}")
    splits = load_splits(source_of(str(tmp_path)))
    assert sizes(splits) == (21, 3, 4)
    assert splits.label_names == ["cat", "dog"]
    assert splits.test["label"] == [0, 0, 1, 1]


def test_a_folder_of_one_class(tmp_path: Path) -> None:
    folder = tmp_path / "train" / "cat"
    folder.mkdir(parents=True)
    for i in range(4):
        picture(i).save(folder / f"{i}.png")
    with pytest.raises(ValueError, match=r"Only one class was found in the folder .*: 'cat'"):
        load_splits(source_of(str(tmp_path)))
