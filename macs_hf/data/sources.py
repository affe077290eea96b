"""From the name of a dataset, a Hub id or a folder to seeded splits with one image and one label column."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, compress
from typing import Any, NamedTuple

import datasets
import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Features, IterableDatasetDict, Value
from datasets.packaged_modules.imagefolder.imagefolder import ImageFolder
from transformers.utils import logging

from ..exceptions import ArgumentError, check_labels
from ..hub import check_place, hub_needed, is_local
from ..report.sections import renamed_line
from .own_files import ForeignFileError, OwnFiles, addresses_in_readme, check_class_folders


logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class DatasetSource:
    """Where a dataset is and how it is laid out."""

    path: str
    config: str | None = None
    image_column: str | None = None  # None: the only image column
    label_column: str | None = None  # None: the only class label, or `label`
    train_split: str = "train"
    validation_split: str | None = None  # None: `validation`, or split off train
    test_split: str = "test"
    horizontal_flip: bool = True  # mirroring keeps the meaning
    group_column: str | None = None  # what test images are grouped by, such as a camera


# Handwritten digits that need no download, all of them and few to train on.
EMBEDDED = ("digits", "few_digits")
# The benchmark's six datasets, and the embedded ones.
DATASETS: dict[str, DatasetSource] = {
    "digits": DatasetSource("digits", horizontal_flip=False),
    "few_digits": DatasetSource("few_digits", horizontal_flip=False),
    "cifar10": DatasetSource("uoft-cs/cifar10", None, "img", "label"),
    "cifar100": DatasetSource("uoft-cs/cifar100", None, "img", "fine_label"),
    "svhn": DatasetSource("ufldl-stanford/svhn", "cropped_digits", "image", "label", horizontal_flip=False),
    "oxford_pets": DatasetSource("timm/oxford-iiit-pet", None, "image", "label"),
    "food101": DatasetSource("ethz/food101", None, "image", "label", test_split="validation"),
    "flowers102": DatasetSource(
        "dpdl-benchmark/oxford_flowers102", None, "image", "label", validation_split="validation"
    ),
}


def source_of(
    dataset: str, config: str | None = None, image_column: str | None = None, label_column: str | None = None, **splits
) -> DatasetSource:
    """A benchmark dataset by name, or a Hub id or local folder laid out as found; what is given here wins."""
    if not dataset.strip():
        names = ", ".join(DATASETS)
        raise ArgumentError("dataset", f"is empty: give a name ({names}), a Hub id or a folder.", dataset)
    check_place("dataset", dataset, DATASETS)
    source = DatasetSource(dataset)
    if dataset in DATASETS and is_local(dataset):
        logger.warning(
            f"The folder {dataset!r} in the current directory is used, not the dataset that is known by this name. "
            f"Rename the folder to get that one; write './{dataset}' to mean the folder."
        )
    elif dataset in DATASETS:
        source = DATASETS[dataset]
    chosen = {"config": config, "image_column": image_column, "label_column": label_column, **splits}
    return replace(source, **{name: value for name, value in chosen.items() if value is not None})


# ---- Which split serves as what, decided from names ----


ROLES = ("train", "validation", "test")
HALVES = (" (half to fit)", " (half to test)")  # of a set without splits, stratified and seeded


def plan_splits(
    source: DatasetSource, sizes: Mapping[str, int], wanted: Sequence[str] = ROLES, unseen: bool = False
) -> dict[str, str | None]:
    """
    What each role is made from (a split, a slice or half of one, or `None` for a share of train), so that neither a
    temperature nor the choice of a model ever sees test: of the splits that the user chose (`source`) and those that
    there are (`sizes`). Refuses names that are missing, and rows with two roles. `train` is there too if another role
    is split off it.
    """
    train, dataset = source.train_split, f"Dataset {source.path!r}"
    plan = {"test": source.test_split, "validation": source.validation_split}
    if plan["test"] == "test" and "test" not in sizes and parts_of(train, sizes):
        plan["test"] = None
    if plan["validation"] is None and "validation" in sizes and "validation" not in (train, source.test_split):
        plan["validation"] = "validation"
    plan = {role: split for role, split in plan.items() if role in (*wanted, "test")}
    whole = train if [*sizes] == [train] and is_local(source.path) else "validation"
    unseen = unseen and "train" not in wanted
    if unseen and plan["test"] is None and source.validation_split is None and whole in sizes:
        halves = {role: whole + half for role, half in zip(("validation", "test"), HALVES, strict=True)}
        plan = halves if "validation" in wanted else {"test": whole}
        which = " and ".join(map(repr, plan.values()))
        logger.warning(f"{dataset} has no split 'test': all of {which} is measured. None may have trained the model.")
    split_off = [role for role, split in plan.items() if split is None]
    if "train" in wanted or split_off:
        plan = {"train": train} | plan
    for role, split in plan.items():
        if split is not None and not parts_of(split, sizes):
            # A train split that only `validation` needs is not what has to be named.
            role = role if role != "train" or "train" in wanted else split_off[0]
            raise ArgumentError(
                f"{role}_split",
                f"{dataset} has no split {split!r} for {role}, only {sorted(sizes)}. Name one, or a slice such as "
                "'train[:50%]', with",
            )
    named = {role: plan[role] for role in ROLES if plan.get(role)}
    parts = [part for split in named.values() for part in parts_of(split, sizes)]
    if any(one.overlaps(other) for one, other in combinations(parts, 2)):
        assigned = ", ".join(f"{role}_split={name!r}" for role, name in named.items())
        raise ValueError(
            f"{dataset}: {assigned} must differ, or the model is tested on what it has seen. Choose other splits or "
            "slices of them; without validation_split, it is split off train."
        )
    if "test" in split_off:
        known = " A model that was trained on it will look better than it is: name another split." if unseen else ""
        logger.warning(f"{dataset} has no split 'test': a tenth of {train!r} is used as the test set.{known}")
    # Training keeps these rows apart; a model that comes from elsewhere may have been trained on them.
    if "train" not in wanted and plan.get("validation", "") in (None, train):
        part = f"a tenth of {train!r}" if "validation" in split_off else repr(train)
        logger.warning(
            f"The temperature is fitted on {part} of dataset {source.path!r}. A model that was trained on those rows "
            "will look better calibrated there than it is: name another split to calibrate on, which it has not seen."
        )
    return plan


def validation_name(plan: Mapping[str, str | None]) -> str:
    """Where the validation rows of a plan come from, for reports."""
    return plan.get("validation", "validation") or f"{plan['train']} (a tenth, split off)"


class Part(NamedTuple):
    """Rows of a split; all of them if one of its halves is meant."""

    split: str
    start: int
    end: int
    half: str = ""

    def overlaps(self, other: "Part") -> bool:
        meet = self.split == other.split and max(self.start, other.start) < min(self.end, other.end)
        return meet and (self.half == other.half or not (self.half and other.half))


def parts_of(name: str, sizes: Mapping[str, int]) -> list[Part]:
    """What a split's name means: the split, slices as in `datasets` (`train[:50%]+extra`), or a half; else nothing."""
    half = next((half for half in HALVES if name.endswith(half)), "")
    split = name.removesuffix(half)
    if split in sizes:
        return [Part(split, 0, sizes[split], half)]
    try:
        found = datasets.ReadInstruction.from_spec(name).to_absolute(dict(sizes))
    except (ValueError, AssertionError):
        return []
    return [Part(part.splitname, part.from_, part.to) for part in found]


# ---- Splits ----


VALIDATION_SHARE = 0.1
# Splits stay the same for all seeds of training, so that runs can be compared.
SPLIT_SEED = 0


class ImageSplits(NamedTuple):
    """Splits without common rows, those that were asked for, and what their columns mean."""

    train: Dataset | None
    validation: Dataset | None
    test: Dataset
    image_column: str
    label_column: str
    label_names: list[str]
    source: DatasetSource
    validation_name: str = "validation"  # where its rows come from
    test_name: str = "test"
    test_index: np.ndarray | None = None  # where they are in their split, if some of it were left out


def load_splits(source: DatasetSource, wanted: Sequence[str] = ROLES, unseen: bool = False) -> ImageSplits:
    """
    The whole splits that [`load_data`] is asked for; one that is missing is split off train, stratified and seeded.
    Those that are not wanted are `None`, and need not exist.
    """
    raw = load_raw(source)
    sizes = {name: len(split) for name, split in raw.items()}
    plan = plan_splits(source, sizes, wanted, unseen)
    parts = {role: parts_of(name, sizes) for role, name in plan.items() if name is not None}
    # Splits that are not needed (SVHN has 531,131 `extra` images) are left alone.
    needed = [part.split for role in ROLES for part in parts.get(role, ())]
    image, label = find_columns(raw[needed[0]].features, source)
    check_group_column(raw[parts.get("test", parts.get("train"))[0].split].features, source)
    if not isinstance(raw[needed[0]].features[label], ClassLabel):
        # Classes without names are numbered in order, over the splits that a training run would number.
        for name in (source.train_split, source.validation_split or "validation"):
            needed += [part.split for part in parts_of(name, sizes)]
    raw, label_names = with_class_labels({name: raw[name] for name in needed}, image, label, source)
    splits = {}
    for role, found in parts.items():
        splits[role] = _joined(raw, found, label)
        check_label_column(splits[role], label, len(label_names), f"split {plan[role]!r} of {source.path!r}")
    for role in (role for role in plan if role not in parts):
        splits["train"], splits[role] = split_off(splits["train"], label, VALIDATION_SHARE)
    if "train" in wanted:
        _check_classes(splits["train"], splits["test"], label, label_names, source)
    return ImageSplits(
        *(splits[role] if role in wanted or role == "test" else None for role in ROLES),
        image,
        label,
        label_names,
        source,
        validation_name(plan),
        plan["test"] or source.test_split,
    )


def _joined(raw: Mapping[str, Dataset], parts: Sequence[Part], label_column: str) -> Dataset:
    rows = []
    for split, start, end, half in parts:
        whole = raw[split] if (start, end) == (0, len(raw[split])) else raw[split].select(range(start, end))
        rows.append(split_off(whole, label_column, 0.5)[HALVES.index(half)] if half else whole)
    return rows[0] if len(rows) == 1 else datasets.concatenate_datasets(rows)


def _check_classes(
    train: Dataset, test: Dataset, label_column: str, label_names: list[str], source: DatasetSource
) -> None:
    trained, tested = (set(np.unique(labels_of(split, label_column))) for split in (train, test))
    if len(trained) < 2:
        raise ValueError(
            f"All {len(train)} training images of {source.path!r} are of class {label_names[trained.pop()]!r}; a "
            "classifier needs at least two classes to learn from."
        )
    if missing := tested - trained:
        logger.warning(f"Classes in test that train does not have: {listed(label_names[i] for i in missing)}.")


def listed(names: Iterable[Any], at_most: int = 20) -> str:
    """The first names in order, and how many more there are."""
    names = sorted(names)
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return ", ".join(map(str, names[:at_most])) + more


def split_off(dataset: Dataset, label_column: str, share: float | int) -> tuple[Dataset, Dataset]:
    """The rest and a share or a number of the rows, stratified by class where every class can be split."""
    _, counts = np.unique(labels_of(dataset, label_column), return_counts=True)
    size = share if isinstance(share, int) else len(dataset) * share
    column = label_column if counts.min() >= 2 and size >= len(counts) else None
    parts = dataset.train_test_split(test_size=share, seed=SPLIT_SEED, stratify_by_column=column)
    return parts["train"], parts["test"]


def load_raw(source: DatasetSource, streaming: bool = False) -> DatasetDict | IterableDatasetDict:
    """All splits, unchanged; data on this disk or embedded are never streamed."""
    embedded = source.path in EMBEDDED and not is_local(source.path)
    saved = any(os.path.exists(os.path.join(source.path, name)) for name in ("dataset_dict.json", "state.json"))
    if source.config is not None and (saved or embedded):
        raise ArgumentError("config", f"does not exist: dataset {source.path!r} has none.", source.config)
    if embedded:
        return _digits(few=source.path == "few_digits")
    own = OwnFiles(source.path)
    try:
        if saved:
            found = datasets.load_from_disk(source.path)
            found = found if isinstance(found, DatasetDict) else DatasetDict(train=found)
            own.check(*(file["filename"] for split in found.values() for file in split.cache_files))
        else:
            with hub_needed(f"Dataset {source.path!r}", source.path, "dataset"):
                own.check(*addresses_in_readme(source.path))
                builder = datasets.load_dataset_builder(source.path, source.config)
                files = [str(file) for split in (builder.config.data_files or {}).values() for file in split]
                own.check(*files)
                if is_local(source.path) and isinstance(builder, ImageFolder):
                    check_class_folders(source.path, files)
                if streaming:
                    return builder.as_streaming_dataset()
                builder.download_and_prepare()
                found = builder.as_dataset()
        for name, split in found.items():
            OwnFiles(source.path, split.info.builder_name).check_images(split, name)
        return found
    except (OSError, ForeignFileError, ArgumentError):
        raise  # these say what is missing, or which file is not the dataset's own
    except Exception as error:
        # A broken README, table of metadata or file, or a loading script, makes `datasets` raise nearly anything.
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = f"{type(cause).__name__}: {' '.join(str(cause).split())}"
        raise ValueError(f"Dataset {source.path!r} is empty or damaged, or cannot be read ({reason}).") from error


def _digits(few: bool) -> DatasetDict:
    """
    1,797 real scans of handwritten digits, 8x8 pixels, that ship with scikit-learn; if `few`, 300 to train on, so that
    there are mistakes to see, 400 to hold out, enough for guarantees, and 1,097 to test on.
    """
    from PIL import Image
    from sklearn.datasets import load_digits

    scans = load_digits()
    images = [Image.fromarray(np.uint8(scan * (255 / 16))) for scan in scans.images]
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=[str(n) for n in scans.target_names])})
    whole = Dataset.from_dict({"image": images, "label": scans.target.tolist()}, features=features)
    train, test = split_off(whole, "label", 1097 if few else 0.25)
    if not few:
        return DatasetDict(train=train, test=test)
    train, validation = split_off(train, "label", 400)
    return DatasetDict(train=train, validation=validation, test=test)


# ---- Columns and classes ----


def find_columns(features: Features, source: DatasetSource) -> tuple[str, str]:
    """The image column and the label column: those named, or the only ones there can be."""
    image, label = find_image_column(features, source), named_label_column(features, source)
    if list(features) == [image]:
        raise ValueError(
            f"Dataset {source.path!r} has images, but no labels. A folder needs at least two classes, each with a "
            "folder of its own: ant/1.png, bee/1.png, ..., or the same below train and test."
        )
    if not _names_classes(features.get(label)):
        raise _wrong_column("label_column", label, "one class per image", features, source)
    return image, label


def find_image_column(features: Features, source: DatasetSource, argument: str = "image_column") -> str:
    """The image column that was named, or the only one; `argument` is what has to change if there is none."""
    images = [name for name, feature in features.items() if isinstance(feature, datasets.Image)]
    image = source.image_column or (images[0] if len(images) == 1 else None)
    if image not in images:
        hint = "" if images else " (paths take a metadata.csv with a column file_name, beside the images)"
        raise _wrong_column(argument, image, f"images{hint}", features, source)
    return image


def named_label_column(features: Features, source: DatasetSource) -> str | None:
    """The label column that was named, is called so, or is the only class label."""
    if label := source.label_column or next((name for name in ("label", "labels") if name in features), None):
        return label
    classes = [name for name, feature in features.items() if isinstance(feature, ClassLabel)]
    return classes[0] if len(classes) == 1 else None


def check_group_column(features: Features, source: DatasetSource) -> None:
    """Refuse a column to group test images by, such as a camera, that does not exist or has no single value each."""
    name = source.group_column
    feature = features.get(name)
    if name is not None and (not isinstance(feature, ClassLabel | Value) or "binary" in feature.dtype):
        raise _wrong_column("group_column", name, "one value per image", features, source)


def _wrong_column(
    argument: str, name: str | None, wanted: str, features: Features, source: DatasetSource
) -> ArgumentError:
    which = "no column, or several," if name is None else f"no column {name!r}"
    columns = ", ".join(
        f"{column} ({feature.dtype if isinstance(feature, Value) else type(feature).__name__})"
        for column, feature in features.items()
    )
    return ArgumentError(
        argument, f"Dataset {source.path!r} has {which} with {wanted}; it has {columns}. Name another with"
    )


def with_class_labels(
    raw: Mapping[str, Dataset], image_column: str, label_column: str, source: DatasetSource
) -> tuple[dict[str, Dataset], list[str]]:
    """
    Labels as `ClassLabel`; integers and strings become names in sorted order. What marks a row without a label, None
    or -1, stays.
    """
    first = next(iter(raw.values())).features[label_column]
    for name, split in raw.items():
        is_image = isinstance(split.features.get(image_column), datasets.Image)
        if not is_image or split.features.get(label_column) != first:
            raise ValueError(
                f"The splits of dataset {source.path!r} disagree about columns {image_column!r} and {label_column!r}: "
                f"split {name!r} has {split.features}, and the labels of the first one are {first}. Give all splits "
                "the same columns and classes, or name other splits."
            )
    if isinstance(first, ClassLabel):
        names, numbered = first.names, dict(raw)
    else:
        values = sorted(set().union(*(values_of(split, label_column) for split in raw.values())) - {None, -1})
        names, order = [str(value) for value in values], {value: number for number, value in enumerate(values)}
        numbered = {name: renumbered(split, label_column, order, names) for name, split in raw.items()}
    if len(names) < 2:
        raise ValueError(
            f"Dataset {source.path!r} has {len(names)} class ({', '.join(names)}) in column {label_column!r}; a "
            "classifier needs at least two."
        )
    return numbered, names


def _names_classes(feature: Any) -> bool:
    """Whether a column has one class per image: a `ClassLabel`, or integers or strings of any width."""
    kinds = ("int", "uint", "string", "large_string", "bool")
    return isinstance(feature, ClassLabel) or (isinstance(feature, Value) and feature.dtype.startswith(kinds))


def renumbered(dataset: Dataset, label_column: str, numbers: dict[Any, int], names: Sequence[str]) -> Dataset:
    """The dataset with other class numbers, by label; a label that is not among them stays."""

    def renumber(label: Any) -> dict[str, int]:
        return {label_column: numbers.get(label, label)}

    features = Features(dataset.features | {label_column: ClassLabel(names=list(names))})
    return dataset.map(renumber, input_columns=[label_column], features=features, desc="Numbering the classes")


def values_of(dataset: Dataset, column: str) -> list[Any]:
    """All values of a column as they are stored; no other column is read."""
    return dataset.with_format("arrow", columns=[column])[:].column(column).to_pylist()


def labels_of(dataset: Dataset, label_column: str) -> np.ndarray:
    return dataset.with_format("numpy", columns=[label_column])[:][label_column]


def check_numbered(dataset: Dataset, label_column: str, where: str) -> None:
    """Refuse labels that are missing, or text in place of class numbers."""
    values = values_of(dataset, label_column)
    wrong = [value for value in values if value is None or isinstance(value, str)]
    if wrong:
        raise ValueError(
            f"Column {label_column!r} of {where} holds {wrong[0]!r}, no class number, in {len(wrong)} of "
            f"{len(values)} rows. Leave rows without a label out, with dataset.filter; number named classes, alike in "
            f"every split, with dataset.cast_column({label_column!r}, datasets.ClassLabel(names=[...]))."
        )


def check_label_column(dataset: Dataset, label_column: str, num_classes: int, where: str) -> None:
    labels = labels_of(dataset, label_column)
    if len(labels) == 0:
        raise ValueError(f"{where} is empty.")
    advice = "-1 or nan often marks rows without labels. Leave them out, correct them or choose another split."
    check_labels(labels, num_classes, where, advice)


def align_labels(dataset: Dataset, label_column: str, label_names: list[str], config: Any) -> Dataset:
    """The dataset with the class numbers of a model that knows its classes, perhaps more, and in another order."""
    classes = [str((config.id2label or {}).get(index, f"LABEL_{index}")) for index in range(config.num_labels)]
    model_names, names = _comparable(classes, label_names)
    if names == model_names:
        return dataset
    if set(names) <= set(model_names):
        if left := len(model_names) - len(names):
            logger.warning(f"{left} of the model's {len(model_names)} classes are not among the dataset's.")
        numbers = {number: model_names.index(name) for number, name in enumerate(names)}
        return renumbered(dataset, label_column, numbers, classes)
    moved = any(name in model_names and model_names.index(name) != index for index, name in enumerate(names))
    if moved or len(names) != len(model_names):
        raise ValueError(
            f"The model has {len(classes)} classes ({listed(classes, 3)}), the dataset {len(names)} "
            f"({listed(label_names, 3)}), and they do not fit. Choose a dataset of the model's classes, train it on "
            "this one, or rename classes that are the same."
        )
    logger.warning(renamed_line(renamed_classes(classes, label_names)))
    return dataset


def renamed_classes(model_names: Sequence[str], label_names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The classes of one number that a model and a dataset call by different names: both names, the model's first."""
    differ = [name != other for name, other in zip(*_comparable(model_names, label_names), strict=False)]
    return tuple(compress(zip(model_names, label_names, strict=False), differ))


def _comparable(model_names: Sequence[str], label_names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Case may differ between a model and a dataset, unless it tells classes apart."""
    if len({name.lower() for name in model_names}) < len(model_names):
        return list(model_names), list(label_names)
    return [name.lower() for name in model_names], [name.lower() for name in label_names]
