"""From a name to three splits without common rows: which split serves as what, columns, classes, refusals."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, Value
from sklearn.datasets import load_digits
from transformers import PretrainedConfig

from macs_hf.data.preparing import class_balanced_subset
from macs_hf.data.sources import (
    ROLES,
    DatasetSource,
    align_labels,
    find_columns,
    labels_of,
    load_splits,
    plan_splits,
    renamed_classes,
    renamed_line,
    source_of,
    split_off,
)
from macs_hf.evaluation.evaluate import load_model_and_data
from macs_hf.models.loading import load_classifier
from macs_hf.models.timm_layout import save_classifier
from macs_hf.report.report import EvaluationReport
from macs_hf.report.run_folder import public_name

from .small_datasets import LOADERS, images_of, picture, saved, sizes, table


def test_digits_are_the_scans_of_scikit_learn() -> None:
    scans = load_digits()
    for name, expected in (("digits", (1212, 135, 450)), ("few_digits", (300, 400, 1097))):
        splits = load_splits(source_of(name))
        assert sizes(splits) == expected
        assert (splits.image_column, splits.label_column) == ("image", "label")
        assert splits.label_names == [str(digit) for digit in range(10)]
        stored = [row for split in splits[:3] for row in images_of(split)]
        assert sorted(stored) == sorted(np.uint8(scan * (255 / 16)).tobytes() for scan in scans.images)
        again = load_splits(source_of(name))
        for split, other in zip(splits[:3], again[:3], strict=True):
            assert images_of(split) == images_of(other) and list(split["label"]) == list(other["label"])
            np.testing.assert_allclose(np.bincount(labels_of(split, "label")) / len(split), 0.1, atol=0.008)


def test_sources_by_name_by_id_and_overridden() -> None:
    coarse = DatasetSource("uoft-cs/cifar100", None, "img", "coarse_label")
    assert source_of("cifar100", label_column="coarse_label") == coarse
    birds = DatasetSource("someone/birds", "small", test_split="holdout")
    assert source_of("someone/birds", "small", test_split="holdout") == birds


def test_a_local_folder_wins_over_a_name_and_a_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "digits", train=table([0, 1] * 20))
    assert load_splits(source_of("digits")).label_names == ["cat", "dog"]
    assert "folder 'digits'" in caplog.text
    caplog.clear()
    assert load_splits(source_of("./digits")).label_names == ["cat", "dog"]
    assert "folder" not in caplog.text


CALIBRATE, EVALUATE = ("validation", "test"), ("test",)


@pytest.mark.parametrize(
    ("names", "chosen", "wanted", "named", "split_off", "warned"),
    [
        (["train", "validation", "test"], {}, ROLES, "train validation test", "", 0),
        (["test", "extra", "train"], {}, ROLES, "train - test", "validation", 0),  # training keeps them apart
        (["train"], {}, ROLES, "train - -", "test validation", 1),
        (["train", "validation"], {"test_split": "validation"}, ROLES, "train - validation", "validation", 0),
        (["a", "b", "c"], {"train_split": "a", "validation_split": "b", "test_split": "c"}, ROLES, "a b c", "", 0),
        (["train", "test"], {}, EVALUATE, "- - test", "", 0),  # no temperature is fitted
        (["train"], {}, EVALUATE, "train - -", "test", 1),
        (["train", "test"], {"test_split": "train"}, EVALUATE, "- - train", "", 0),
        (["validation", "test"], {}, CALIBRATE, "- validation test", "", 0),
        (["train", "test"], {}, CALIBRATE, "train - test", "validation", 1),  # the model may know them
        (["train", "test"], {"validation_split": "train"}, CALIBRATE, "- train test", "", 1),
        (["train"], {}, CALIBRATE, "train - -", "test validation", 2),
    ],
)
def test_plans(
    names: list[str],
    chosen: dict[str, str],
    wanted: tuple,
    named: str,
    split_off: str,
    warned: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = plan_splits(DatasetSource("d", **chosen), dict.fromkeys(names, 100), wanted)
    expected = {role: name for role, name in zip(ROLES, named.split(), strict=True) if name != "-"}
    assert plan == expected | dict.fromkeys(split_off.split())
    assert len(caplog.messages) == warned


@pytest.mark.parametrize(
    ("names", "chosen", "wanted", "message"),
    [
        (["test"], {}, ROLES, "train_split"),
        (["train"], {"test_split": "tset"}, ROLES, "test_split"),
        (["train"], {"validation_split": "dev"}, ROLES, "validation_split"),
        (["test"], {}, CALIBRATE, "validation_split"),
        (["train", "test"], {"test_split": "train"}, ROLES, "train_split='train', test_split='train'"),
        (["test"], {"validation_split": "test"}, CALIBRATE, "validation_split='test', test_split='test'"),
        (["train"], {"test_split": "train[:50%]"}, ROLES, "train_split='train', test_split='train"),
        (["train"], {"test_split": "train[:50%]"}, CALIBRATE, "test_split='train"),  # a tenth of train is needed
        (["train"], {"test_split": "train[:10]", "validation_split": "train[9:]"}, CALIBRATE, "differ"),
        (["train"], {"test_split": "train[:5]+train[3:8]"}, EVALUATE, "differ"),
        (["train"], {"test_split": "train[:50%"}, EVALUATE, "test_split"),
        (["train"], {"test_split": "train[a:b]"}, EVALUATE, "test_split"),
    ],
)
def test_plans_that_cannot_be(names: list[str], chosen: dict[str, str], wanted: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_splits(DatasetSource("d", **chosen), dict.fromkeys(names, 100), wanted)


@pytest.mark.parametrize(
    ("chosen", "wanted", "parts"),
    [
        ({"test_split": "train[:50%]"}, EVALUATE, {"test": range(10)}),
        ({"test_split": "train[-3:]+extra[1:3]"}, EVALUATE, {"test": [17, 18, 19, 101, 102]}),
        ({"test_split": "test", "validation_split": "train[15:]"}, CALIBRATE, {"validation": range(15, 20)}),
        ({"train_split": "train[:80%]", "validation_split": "train[80%:]"}, ROLES, {"train": range(16)}),
    ],
)
def test_slices(chosen: dict[str, str], wanted: tuple, parts: dict[str, Any], tmp_path: Path) -> None:
    rows = {"train": table([0, 1] * 10), "test": table([0, 1] * 2, start=200), "extra": table([0, 1] * 2, start=100)}
    splits = load_splits(replace(saved(tmp_path, **rows), **chosen), wanted)
    assert splits.test_name == chosen.get("test_split", "test")
    for role, numbers in parts.items():
        assert images_of(getattr(splits, role)) == [np.asarray(picture(n)).tobytes() for n in numbers]


def test_a_folder_without_splits_that_the_model_has_not_seen(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = saved(tmp_path, train=table([0, 0, 0, 1] * 20))
    splits = load_splits(source, EVALUATE, unseen=True)
    assert (len(splits.test), splits.test_name) == (80, "train") and "all" in caplog.text
    splits = load_splits(source, CALIBRATE, unseen=True)
    halves = [set(images_of(part)) for part in (splits.validation, splits.test)]
    assert [len(half) for half in halves] == [40, 40] and not halves[0] & halves[1]
    assert np.bincount(labels_of(splits.test, "label")).tolist() == [30, 10]
    # A report names its half, so that it can be measured again.
    again = load_splits(replace(source, test_split=splits.test_name), EVALUATE)
    assert images_of(again.test) == images_of(splits.test) and again.test_name == splits.test_name
    assert sizes(load_splits(source, ROLES, unseen=True)) == sizes(load_splits(source)) == (64, 8, 8)


def test_without_a_test_split_validation_is_tested_and_not_what_may_have_trained_the_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = saved(tmp_path, train=table([0, 1] * 20), validation=table([0, 1] * 10, start=100))
    whole = images_of(load_splits(source, EVALUATE, unseen=True).test)
    splits = load_splits(source, CALIBRATE, unseen=True)
    halves = [images_of(part) for part in (splits.validation, splits.test)]
    assert len(whole) == 20 and sorted(halves[0] + halves[1]) == sorted(whole)
    chosen = load_splits(replace(source, validation_split="validation"), CALIBRATE, unseen=True)
    assert (len(chosen.validation), len(chosen.test)) == (20, 4) and "trained on it" in caplog.text
    assert sizes(load_splits(source, ROLES, unseen=True)) == sizes(load_splits(source)) == (36, 20, 4)


def test_a_folder_is_measured_whole_unless_the_model_was_trained_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data, model = saved(tmp_path / "data", train=table([0, 1] * 20)), tmp_path / "model"
    save_classifier(*load_classifier("tiny", ["cat", "dog"]), model)

    def measured() -> tuple[int, int]:
        loaded = (load_model_and_data(str(model), data, calibrate=each, use_cpu=True) for each in (False, True))
        return tuple(len(each.test) for each in loaded)

    assert measured() == (40, 20)
    (model / "evaluation.json").write_text("{")  # no report
    assert measured() == (40, 20)
    report = SimpleNamespace(training_arguments={"max_steps": 1}, dataset=public_name(data.path))
    monkeypatch.setattr(EvaluationReport, "load", lambda path: report)
    assert measured() == (4, 4) and "on new images" not in caplog.text
    load_model_and_data(str(model), replace(data, test_split="train[:50%]"), calibrate=False, use_cpu=True)
    assert "on new images" in caplog.text


def test_a_validation_split_is_split_off_stratified_and_without_common_rows(tmp_path: Path) -> None:
    source = saved(tmp_path, train=table([0, 0, 0, 1] * 20), test=table([0, 1], start=200))
    splits = load_splits(source)
    assert sizes(splits) == (72, 8, 2)
    assert np.bincount(labels_of(splits.validation, "label")).tolist() == [6, 2]
    assert set(images_of(splits.train)) | set(images_of(splits.validation)) == {
        np.asarray(picture(i)).tobytes() for i in range(80)
    }
    assert images_of(load_splits(source).validation) == images_of(splits.validation)


def test_only_what_is_wanted_is_prepared_and_complained_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = saved(tmp_path, train=table([1] * 40), test=table([0, 1] * 3, start=100))  # train cannot be learned from
    splits = load_splits(source, wanted=("test",))
    assert (splits.train, splits.validation, len(splits.test)) == (None, None, 6)
    assert not caplog.records
    splits = load_splits(source, wanted=("validation", "test"))
    assert (splits.train, len(splits.validation), splits.validation_name) == (None, 4, "train (a tenth, split off)")
    assert "calibrate" in caplog.text


def test_splitting_off_where_a_class_is_too_rare_to_be_split() -> None:
    rest, part = split_off(table([0] * 19 + [1]), "label", 0.1)
    assert (len(rest), len(part)) == (18, 2)


# ---- Subsets ----


@pytest.mark.parametrize("size", [1, 7, 99, 101])
def test_a_subset_keeps_the_shares_of_the_classes(size: int) -> None:
    labels = [0] * 50 + [1] * 30 + [2] * 20
    data = table(labels, ClassLabel(names=["a", "b", "c"]))
    subset = class_balanced_subset(data, "label", size, seed=0)
    assert len(subset) == min(size, 100) == len(set(images_of(subset)))
    counts = np.bincount(labels_of(subset, "label"), minlength=3)
    assert np.abs(counts - len(subset) * np.array([0.5, 0.3, 0.2])).max() <= 1


def test_subsets_depend_on_the_seed_alone() -> None:
    data = table([0, 1] * 50)
    first, again, other = (images_of(class_balanced_subset(data, "label", 20, seed)) for seed in (0, 0, 1))
    assert first == again
    assert set(first) != set(other)
    # A larger subset holds the smaller one, so that learning curves add data and never exchange it.
    assert set(first) < set(images_of(class_balanced_subset(data, "label", 40, 0)))


# ---- Folders, columns, labels ----


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


IMAGE, LABEL = datasets.Image(), ClassLabel(names=["a", "b"])


WORDS, NUMBERS = Value("string"), Value("int64")


@pytest.mark.parametrize("wanted", [ROLES, EVALUATE])
@pytest.mark.parametrize(
    ("kind", "train", "validation", "test", "names", "numbers"),
    [
        (NUMBERS, [7, 3], [3], [3, 12], ["3", "7", "12"], [0, 2]),
        (WORDS, ["ant", "cat"], ["bee"], ["cat", "bee"], ["ant", "bee", "cat"], [2, 1]),
    ],
)
def test_classes_without_names_are_numbered_as_for_training_whatever_is_wanted(
    kind: Value, train: list, validation: list, test: list, names: list, numbers: list, wanted: tuple, tmp_path: Path
) -> None:
    rows = {"train": train * 10, "validation": validation * 2, "test": test, "extra": [None]}
    splits = load_splits(saved(tmp_path, **{name: table(labels, kind) for name, labels in rows.items()}), wanted)
    assert splits.label_names == splits.test.features["label"].names == names
    assert list(splits.test["label"]) == numbers
    assert wanted == EVALUATE or list(splits.validation["label"]) == [names.index(str(validation[0]))] * 2


def test_an_unlabelled_test_split_is_named_unless_another_is_chosen(tmp_path: Path) -> None:
    source = saved(
        tmp_path, train=table([0, 1] * 20), validation=table([0, 1] * 5, start=100), test=table([-1] * 4, start=200)
    )
    with pytest.raises(ValueError, match=r"Label -1 of row 0 in split 'test'.*\(4 such rows"):
        load_splits(source)
    splits = load_splits(source_of(source.path, test_split="validation"))
    assert sizes(splits) == (36, 4, 10)


def test_names_of_a_model_and_a_dataset() -> None:
    assert renamed_classes(["Cat", "dog"], ["cat", "Dog"]) == ()  # case may differ
    assert renamed_classes(["a", "A"], ["A", "a"]) == (("a", "A"), ("A", "a"))  # unless it tells classes apart
    renamed = renamed_classes([f"LABEL_{number}" for number in range(5)], ["cat", "dog", "LABEL_2", "cow", "hen"])
    assert renamed == (("LABEL_0", "cat"), ("LABEL_1", "dog"), ("LABEL_3", "cow"), ("LABEL_4", "hen"))
    assert ": LABEL_0 is cat, LABEL_1 is dog, LABEL_3 is cow and 1 more. " in renamed_line(renamed)


@pytest.mark.parametrize(
    ("names", "expected"), [(["Dog", "cat"], [2, 0]), (["cat", "ant", "dog"], [0, 1, 2]), (["cat", "cow"], None)]
)
def test_a_part_of_the_classes_is_matched_by_name(names: list[str], expected: list[int] | None) -> None:
    config = PretrainedConfig(id2label=dict(enumerate(["cat", "ant", "dog"])))
    data = table(list(range(len(names))), ClassLabel(names=names))
    if expected is None:
        with pytest.raises(ValueError, match="3 classes"):
            align_labels(data, "label", names, config)
    else:
        assert list(align_labels(data, "label", names, config)["label"]) == expected


@pytest.mark.parametrize(
    ("features", "named", "found"),
    [
        ({"id": Value("int64"), "img": IMAGE, "species": LABEL}, {}, ("img", "species")),
        ({"img": IMAGE, "labels": Value("string"), "other": LABEL}, {}, ("img", "labels")),
        ({"img": IMAGE, "fine": LABEL, "coarse": LABEL}, {"label_column": "coarse"}, ("img", "coarse")),
        ({"left": IMAGE, "right": IMAGE, "label": LABEL}, {"image_column": "right"}, ("right", "label")),
        ({"left": IMAGE, "right": IMAGE, "label": LABEL}, {}, "image_column="),
        ({"image": IMAGE, "label": LABEL}, {"image_column": "label"}, "image_column="),
        ({"image": IMAGE, "label": LABEL}, {"label_column": "class"}, "label_column="),
        ({"image": IMAGE, "label": Value("float64")}, {}, "label_column="),
    ],
)
def test_columns(features: dict[str, Any], named: dict[str, str], found: tuple[str, str] | str) -> None:
    source = DatasetSource("d", **named)
    if isinstance(found, tuple):
        assert find_columns(Features(features), source) == found
    else:
        with pytest.raises(ValueError, match=found):
            find_columns(Features(features), source)


DESCRIBED = table([0, 1]).remove_columns("image").add_column("image", ["x", "y"])


@pytest.mark.parametrize(
    ("splits", "named"),
    [
        ({"train": table([3] * 10, NUMBERS)}, "'label'"),
        ({"train": table([0] * 10, ClassLabel(names=["cat"]))}, "'label'"),
        ({"train": table([0, 1, -1, 1] * 5, NUMBERS)}, "Label -1 of row 2 .*'train'"),
        ({"train": table(["a", None, "b"] * 5, WORDS)}, "Label nan of row 1 .*'train'"),
        ({"train": table([3, 7] * 10, NUMBERS), "test": table(["3", "7"], WORDS)}, "'test'"),
        ({"train": table([0, 1] * 20), "test": table([0, 1]).rename_column("image", "photo")}, "'image'.*'test'"),
        ({"train": table([0, 1] * 20), "test": DESCRIBED}, "'image'.*'test'"),
        ({"train": table([1] * 40), "test": table([0, 1])}, "'dog'"),
    ],
)
def test_splits_that_cannot_be_learned_from(splits: dict[str, Dataset], named: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=named):
        load_splits(saved(tmp_path, **splits))


@pytest.mark.parametrize("places", [["ant"], ["train/ant", "test/ant"]])
def test_a_folder_with_one_class_folder_is_refused(places: list[str], tmp_path: Path) -> None:
    for place in places:
        (tmp_path / place).mkdir(parents=True)
        for number in range(3):
            picture(number).save(tmp_path / place / f"{number}.png")
    for load in LOADERS:
        with pytest.raises(ValueError, match="two classes"):
            load(DatasetSource(str(tmp_path)))
