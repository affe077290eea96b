"""Datasets become three splits without common rows, with the columns meant, or an error that says why not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from PIL import Image
from transformers.utils import logging

from macs_hf.data.columns import check_label_column, find_columns, labels_of
from macs_hf.data.sources import DATASETS, DatasetSource, source_of
from macs_hf.data.splits import ImageSplits, class_balanced_subset, load_splits, split_off


def picture(value: int) -> Image.Image:
    return Image.new("RGB", (4, 4), (value % 256, value // 256, 0))


def table(labels: list, feature: Any = None, start: int = 0, **columns: Any) -> Dataset:
    """One image per label, each of another colour: the colour tells which row it is."""
    feature = feature or ClassLabel(names=["cat", "dog"])
    features = Features({"image": datasets.Image(), "label": feature})
    images = [picture(start + i) for i in range(len(labels))]
    return Dataset.from_dict({"image": images, "label": labels}, features=features)


def saved(folder: Path, **splits: Dataset) -> DatasetSource:
    DatasetDict(splits).save_to_disk(folder)
    return DatasetSource(str(folder))


def rows_of(split: Dataset, column: str = "image") -> list[tuple]:
    return [np.asarray(image).tobytes() for image in split[column]]


def sizes(splits: ImageSplits) -> tuple[int, int, int]:
    return len(splits.train), len(splits.validation), len(splits.test)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What the library logs, which transformers' logger keeps from pytest otherwise."""
    logging.enable_propagation()
    yield caplog
    logging.disable_propagation()


# ---- The embedded dataset and the table of the others ----


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
    classes = {name: source.num_classes for name, source in DATASETS.items()}
    assert classes == {
        "digits": 10,
        "few_digits": 10,
        "cifar10": 10,
        "cifar100": 100,
        "svhn": 10,
        "oxford_pets": 37,
        "food101": 101,
        "flowers102": 102,
    }
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


# ---- Which columns ----

IMAGE, LABEL = datasets.Image(), ClassLabel(names=["a", "b"])


@pytest.mark.parametrize(
    ("features", "named", "found"),
    [
        ({"image": IMAGE, "label": LABEL}, {}, ("image", "label")),
        ({"id": Value("int64"), "img": IMAGE, "species": LABEL}, {}, ("img", "species")),
        ({"img": IMAGE, "labels": Value("string"), "other": LABEL}, {}, ("img", "labels")),
        ({"img": IMAGE, "fine": LABEL, "coarse": LABEL}, {"label_column": "coarse"}, ("img", "coarse")),
        ({"left": IMAGE, "right": IMAGE, "label": LABEL}, {"image_column": "right"}, ("right", "label")),
    ],
)
def test_columns(features: dict[str, Any], named: dict[str, str], found: tuple[str, str]) -> None:
    assert find_columns(Features(features), DatasetSource("d", **named)) == found


@pytest.mark.parametrize(
    ("features", "named", "message"),
    [
        ({"text": Value("string"), "label": LABEL}, {}, r"'d' has 0 image columns \(none\).*image_column=\.\.\."),
        ({"left": IMAGE, "right": IMAGE, "label": LABEL}, {}, r"2 image columns \(left, right\).*image_column=\.\.\."),
        ({"image": IMAGE, "label": LABEL}, {"image_column": "label"}, r"'label' .* holds ClassLabel.*\['image'\]"),
        ({"image": IMAGE, "label": LABEL}, {"image_column": "img"}, r"'img' .* does not exist, not images"),
        ({"image": IMAGE}, {}, r"no label column; its columns are \['image'\], 0 of them .*label_column=\.\.\."),
        ({"image": IMAGE, "fine": LABEL, "coarse": LABEL}, {}, r"no label column;.*2 of them.*\(fine, coarse\)"),
        ({"image": IMAGE, "label": LABEL}, {"label_column": "class"}, "no label column 'class'"),
    ],
)
def test_columns_that_cannot_be_told(features: dict[str, Any], named: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_columns(Features(features), DatasetSource("d", **named))


# ---- Labels ----


def test_integer_labels_without_names_are_numbered(tmp_path: Path) -> None:
    source = saved(tmp_path, train=table([7, 3, 7, 3] * 5, Value("int64")), test=table([3, 12], Value("int64")))
    splits = load_splits(source)
    assert splits.label_names == ["3", "7", "12"]
    assert splits.test["label"] == [0, 2]
    assert isinstance(splits.train.features["label"], ClassLabel)


def test_string_labels_become_classes_in_alphabetical_order(tmp_path: Path) -> None:
    names = ["rose", "daisy"] * 10
    splits = load_splits(saved(tmp_path, train=table(names, Value("string")), test=table(names, Value("string"))))
    assert splits.label_names == ["daisy", "rose"]
    assert splits.test["label"] == [1, 0] * 10


@pytest.mark.parametrize(
    ("labels", "feature", "message"),
    [
        ([0.5, 1.0] * 5, Value("float32"), r"'label' .* holds float32, not one class per image.*label_column=\.\.\."),
        ([[0, 1], [1]] * 5, datasets.List(Value("int64")), r"holds List.*not one class per image"),
        ([3] * 10, Value("int64"), r"has 1 class \(3\) in column 'label'; .*at least two"),
        ([0] * 10, ClassLabel(names=["cat"]), r"has 1 class \(cat\)"),
        ([0, 1, -1, -1] * 5, None, r"Label -1 of row 2 in split 'train' .* outside \[0, 2\) \(10 such rows"),
        (
            [0, 1, -1, 1] * 5,
            Value("int64"),
            r"Label -1 in column 'label', split 'train'.*marks 5 rows without a label",
        ),
        ([0, 1, None, 1] * 5, None, r"5 of 20 labels in column 'label' of split 'train' .* missing \(None\).*filter"),
        (["a", None] * 5, Value("string"), r"5 of 10 labels in column 'label' of split 'train' .* missing \(None\)"),
    ],
)
def test_labels_that_are_no_classes(labels: list, feature: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load_splits(saved(tmp_path, train=table(labels, feature)))


@pytest.mark.parametrize(
    ("labels", "kind", "message"),
    [
        (["3", "7"], "string", r"disagree about column 'label': split 'test' has Value\('string'\)"),
        ([0.5, 1.5], "float32", r"'label' of dataset .* holds float32, not one class per image"),
    ],
)
def test_splits_whose_labels_are_of_another_kind(labels: list, kind: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load_splits(saved(tmp_path, train=table([3, 7] * 10, Value("int64")), test=table(labels, Value(kind))))


def test_string_labels_get_the_same_numbers_in_splits_that_lack_some(tmp_path: Path) -> None:
    source = saved(
        tmp_path,
        train=table(["rose", "daisy"] * 10, Value("string")),
        validation=table(["rose", "rose"], Value("string"), start=50),
        test=table(["tulip", "rose"], Value("string"), start=100),
    )
    splits = load_splits(source)
    assert splits.label_names == splits.validation.features["label"].names == ["daisy", "rose", "tulip"]
    assert (list(splits.validation["label"]), list(splits.test["label"])) == ([1, 1], [2, 1])


def test_an_empty_split() -> None:
    with pytest.raises(ValueError, match="split 'train' is empty"):
        check_label_column(table([0, 1]).select([]), "label", 2, "split 'train'")


def test_an_unlabelled_test_split_is_named_unless_another_is_chosen(tmp_path: Path) -> None:
    source = saved(
        tmp_path, train=table([0, 1] * 20), validation=table([0, 1] * 5, start=100), test=table([-1] * 4, start=200)
    )
    with pytest.raises(ValueError, match=r"Label -1 of row 0 in split 'test'.*\(4 such rows"):
        load_splits(source)
    splits = load_splits(source_of(source.path, test_split="validation"))
    assert sizes(splits) == (36, 4, 10)


# ---- Splits ----


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
    with pytest.raises(ValueError, match=r"has no label column; its columns are \[.image.\]"):
        load_splits(source_of(str(tmp_path)))


def test_splits_that_number_the_same_classes_differently_are_aligned(tmp_path: Path) -> None:
    train = table([0, 1] * 20, ClassLabel(names=["dark", "bright"]))
    test = table([0, 1, 1], ClassLabel(names=["bright", "dark"]), start=100)
    splits = load_splits(saved(tmp_path, train=train, test=test))
    assert splits.label_names == ["dark", "bright"]
    assert labels_of(splits.test, "label").tolist() == [1, 0, 0]


def test_splits_with_other_classes_are_refused(tmp_path: Path) -> None:
    train, test = table([0, 1] * 20), table([0, 1], ClassLabel(names=["cat", "cow"]), start=100)
    with pytest.raises(ValueError, match=r"disagree about column 'label': split 'test' has .*cow.*dog"):
        load_splits(saved(tmp_path, train=train, test=test))


def test_training_images_of_one_class_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"All 36 training images .* are of class 'dog'"):
        load_splits(saved(tmp_path, train=table([1] * 40), test=table([0, 1], start=100)))


def test_classes_without_an_image_are_named(tmp_path: Path, warnings: pytest.LogCaptureFixture) -> None:
    names = ClassLabel(names=["cat", "dog", *(f"empty {number}" for number in range(30))])
    load_splits(saved(tmp_path, train=table([0, 1] * 20, names), test=table([0, 1], names, start=100)))
    assert "Classes without an image in train and test: ['empty 0', 'empty 1'" in warnings.text
    assert "'empty 19'] and 10 more." in warnings.text


def test_the_origin_of_the_validation_rows_is_kept(tmp_path: Path) -> None:
    part = load_splits(saved(tmp_path / "a", train=table([0, 1] * 20), test=table([0, 1], start=100)))
    assert part.validation_name == "train (a tenth, split off)"
    own = saved(tmp_path / "b", train=table([0, 1]), validation=table([0, 1], start=50), test=table([0, 1], start=100))
    assert load_splits(own).validation_name == "validation"
