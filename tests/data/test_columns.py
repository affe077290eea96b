"""The image and label columns are those meant, and labels become classes, or an error says why not."""

from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets import ClassLabel, Features, Value

from macs_hf.data.columns import check_label_column, find_columns, labels_of, renamed_classes, renamed_line
from macs_hf.data.sources import DatasetSource, source_of
from macs_hf.data.splits import load_splits
from macs_hf.data.streaming import stream_splits

from .small_datasets import picture, saved, sizes, table


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


@pytest.mark.parametrize("places", [["ant"], ["train/ant", "test/ant"]])
def test_a_folder_with_one_class_folder_is_told_what_is_missing(places: list[str], tmp_path: Path) -> None:
    for place in places:
        (tmp_path / place).mkdir(parents=True)
        for number in range(3):
            picture(number).save(tmp_path / place / f"{number}.png")
    (tmp_path / "notes.txt").write_text("no image")
    message = r"^Only one class was found in the folder '.*': 'ant'\. .*at least two, .*: ant/1\.png, another/1\.png, "
    with pytest.raises(ValueError, match=message):
        load_splits(DatasetSource(str(tmp_path)))
    with pytest.raises(ValueError, match=message):
        stream_splits(DatasetSource(str(tmp_path)), 10)


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


# ---- Classes of all splits ----


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


def test_names_of_a_model_and_a_dataset() -> None:
    assert renamed_classes(["Cat", "dog"], ["cat", "Dog"]) == ()  # case may differ
    assert renamed_classes(["a", "A"], ["A", "a"]) == (("a", "A"), ("A", "a"))  # unless it tells classes apart
    renamed = renamed_classes([f"LABEL_{number}" for number in range(5)], ["cat", "dog", "LABEL_2", "cow", "hen"])
    assert renamed == (("LABEL_0", "cat"), ("LABEL_1", "dog"), ("LABEL_3", "cow"), ("LABEL_4", "hen"))
    assert ": LABEL_0 is cat, LABEL_1 is dog, LABEL_3 is cow and 1 more. " in renamed_line(renamed)
