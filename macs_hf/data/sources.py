"""From the name of a dataset, a Hub id or a folder to seeded splits with one image and one label column."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, compress, product
from typing import Any, NamedTuple

import datasets
import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Features, IterableDatasetDict, Value
from datasets.packaged_modules.imagefolder.imagefolder import ImageFolder
from transformers.utils import logging

from ..exceptions import ArgumentError, check_labels
from ..hub import check_place, hub_needed, is_local
from ..report.sections import renamed_line
from .own_files import ForeignFileError, OwnFiles, check_class_folders, only_class


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


def comes_from_hub(source: DatasetSource) -> bool:
    """Whether a dataset is neither embedded nor in a folder."""
    return source.path not in EMBEDDED and not is_local(source.path)


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


class SplitPlan(NamedTuple):
    """What each role is made from: a split of the dataset, a slice of one, or a share of train."""

    named: dict[str, str]  # by role; `train` is here too if another role is split off it
    split_off: tuple[str, ...]  # roles, in the order in which they are split off

    def origin(self, role: str) -> str:
        """Where the rows of a role come from, for reports."""
        return f"{self.named['train']} (a tenth, split off)" if role in self.split_off else self.named.get(role, role)


def plan_splits(
    source: DatasetSource, sizes: Mapping[str, int], wanted: Sequence[str] = ROLES, unseen: bool = False
) -> SplitPlan:
    """
    Plan the splits so that neither a temperature nor the choice of a model ever sees test, from those that the user
    chose (`source`) and those that there are (`sizes`). Refuses names that are missing, and rows with two roles.
    """
    wanted, train, dataset = {*wanted, "test"}, source.train_split, f"Dataset {source.path!r}"
    chosen = {"test": source.test_split, "validation": source.validation_split}
    if chosen["test"] == "test" and "test" not in sizes and parts_of(train, sizes):
        chosen["test"] = None
    if chosen["validation"] is None and "validation" in sizes and "validation" not in (train, source.test_split):
        chosen["validation"] = "validation"
    chosen = {role: split for role, split in chosen.items() if role in wanted}
    if unseen and "train" not in wanted and [*sizes] == [train] and not any(chosen.values()):
        halves = [train + half for half in HALVES]
        chosen = dict(zip(("validation", "test"), halves, strict=True)) if "validation" in wanted else {"test": train}
        which = " and ".join(map(repr, chosen.values()))
        logger.warning(f"{dataset} has no splits: all of it is measured, as {which}. None may have trained the model.")
    split_off = tuple(role for role, split in chosen.items() if split is None)
    named = {"train": train} if "train" in wanted or split_off else {}
    named |= {role: chosen[role] for role in ("validation", "test") if chosen.get(role)}
    for role, split in named.items():
        if not parts_of(split, sizes):
            # A train split that only `validation` needs is not what has to be named.
            role = role if role != "train" or "train" in wanted else split_off[0]
            raise ArgumentError(
                f"{role}_split",
                f"{dataset} has no split {split!r} for {role}, only {sorted(sizes)}. Name one, or a slice such as "
                "'train[:50%]', with",
            )
    if any(_overlap(one, other, sizes) for one, other in combinations(named.values(), 2)):
        assigned = ", ".join(f"{role}_split={name!r}" for role, name in named.items())
        raise ValueError(
            f"{dataset}: {assigned} must differ, or the model is tested on what it has seen. Choose other splits or "
            "slices of them; without validation_split, it is split off train."
        )
    if "test" in split_off:
        logger.warning(f"{dataset} has no split 'test': a tenth of {train!r} is used as the test set.")
    # Training keeps these rows apart; a model that comes from elsewhere may have been trained on them.
    if "train" not in wanted and ("validation" in split_off or named.get("validation") == train):
        part = f"a tenth of {train!r}" if "validation" in split_off else repr(train)
        logger.warning(
            f"The temperature is fitted on {part} of dataset {source.path!r}. A model that was trained on those rows "
            "will look better calibrated there than it is: name another split to calibrate on, which it has not seen."
        )
    return SplitPlan(named, split_off)


class Part(NamedTuple):
    """Rows of a split; all of them if one of its halves is meant."""

    split: str
    start: int
    end: int
    half: str = ""


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


def _overlap(name: str, other: str, sizes: Mapping[str, int]) -> bool:
    return name == other or any(
        a.split == b.split and max(a.start, b.start) < min(a.end, b.end) and not (a.half and b.half)
        for a, b in product(parts_of(name, sizes), parts_of(other, sizes))
    )


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
    plan = plan_splits(source, sizes, wanted, unseen and is_local(source.path))
    parts = {role: parts_of(name, sizes) for role, name in plan.named.items()}
    # Splits that are not needed (SVHN has 531,131 `extra` images) are left alone.
    needed = [part.split for found in parts.values() for part in found]
    image, label = find_columns(raw[needed[0]].features, source)
    check_group_column(raw[parts.get("test", parts.get("train"))[0].split].features, source)
    numbering = [
        part.split
        for name in (source.train_split, source.validation_split or "validation")
        for part in parts_of(name, sizes)
    ]
    if not isinstance(raw[needed[0]].features[label], ClassLabel):
        # Classes without names are numbered in order, over the splits that a training run would number.
        needed += numbering
    # The first split decides the numbers of the classes.
    ordered = {name: raw[name] for name in dict.fromkeys(numbering + needed) if name in needed}
    raw, label_names = with_class_labels(ordered, image, label, source)
    splits = {}
    for role, found in parts.items():
        splits[role] = _joined(raw, found, label)
        check_label_column(splits[role], label, len(label_names), f"split {plan.named[role]!r} of {source.path!r}")
    if plan.split_off and len(splits["train"]) <= len(plan.split_off):
        few = f"has too few images to split off {' and '.join(plan.split_off)}. Add some, or name other splits with"
        raise ArgumentError("validation_split", f"Split {source.train_split!r} of {source.path!r} {few}")
    for role in plan.split_off:
        splits["train"], splits[role] = split_off(splits["train"], label, VALIDATION_SHARE)
    if "train" in wanted:
        _check_classes(splits["train"], splits["test"], label, label_names, source)
    return ImageSplits(
        *(splits[role] if role in wanted or role == "test" else None for role in ROLES),
        image,
        label,
        label_names,
        source,
        plan.origin("validation"),
        plan.named.get("test", source.test_split),
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
    if empty := set(range(len(label_names))) - trained - tested:
        logger.warning(f"Classes without an image in train and test: {listed(label_names[i] for i in empty)}.")


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
    saved = any(os.path.exists(os.path.join(source.path, name)) for name in ("dataset_dict.json", "state.json"))
    embedded = source.path in EMBEDDED and not is_local(source.path)
    if source.config is not None and (saved or embedded):
        raise ArgumentError(
            "config", f"does not exist: dataset {source.path!r} has none. Leave it out.", source.config
        )
    if embedded:
        return _digits(few=source.path == "few_digits")
    try:
        if saved:
            found = datasets.load_from_disk(source.path)
            found = found if isinstance(found, DatasetDict) else DatasetDict(train=found)
            OwnFiles(source.path).check(*(file["filename"] for split in found.values() for file in split.cache_files))
        else:
            with hub_needed(f"Dataset {source.path!r}", source.path, "dataset"):
                builder = datasets.load_dataset_builder(source.path, source.config)
                files = {split: [*map(str, found)] for split, found in (builder.config.data_files or {}).items()}
                OwnFiles(source.path).check(*chain.from_iterable(files.values()))
                if is_local(source.path) and isinstance(builder, ImageFolder):
                    check_class_folders(source.path, files)
                if streaming:
                    return builder.as_streaming_dataset()
                builder.download_and_prepare()
                found = builder.as_dataset()
        for name, split in found.items():
            OwnFiles(source.path, split.info.builder_name).check_images(split, name)
        return found
    except (OSError, ForeignFileError):
        raise  # which say themselves what is missing, or not the dataset's
    except Exception as error:
        # A broken README, table of metadata or file, or a loading script, makes `datasets` raise nearly anything.
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = " ".join(str(cause).split())
        if not isinstance(cause, ValueError | RuntimeError | OSError):
            reason = f"it is damaged, or a split of it is empty ({type(cause).__name__}: {reason})"
        raise ValueError(f"Dataset {source.path!r} cannot be loaded: {reason}") from error


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
    if list(features) == [image] and (only := only_class(source.path)):
        raise ValueError(
            f"Only one class was found in the folder {source.path!r}: {only!r}. A classifier needs at least two, each "
            f"with a folder of its own: {only}/1.png, another/1.png, ..., or the same below train and test."
        )
    if not isinstance(features.get(label), ClassLabel) and _kind(features.get(label)) not in (
        "integer",
        "text",
        "bool",
    ):
        raise _wrong_column("label_column", label, "one class per image", features, source)
    return image, label


def find_image_column(features: Features, source: DatasetSource, argument: str = "image_column") -> str:
    """The image column that was named, or the only one; `argument` is what has to change if there is none."""
    images = [name for name, feature in features.items() if isinstance(feature, datasets.Image)]
    image = source.image_column or (images[0] if len(images) == 1 else None)
    if image not in images:
        raise _wrong_column(argument, image, "images", features, source)
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
    which = "no column, or more than one," if name is None else f"no column {name!r}"
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
    Labels as `ClassLabel`, numbered as in the first split; integers and strings become names in sorted order. What
    marks a row without a label, None or -1, stays.
    """
    first = next(iter(raw.values())).features.get(label_column)
    for name, split in raw.items():
        own = split.features.get(label_column)
        if not isinstance(split.features.get(image_column), datasets.Image) or _kind(own) != _kind(first):
            raise ValueError(
                f"The splits of dataset {source.path!r} disagree about columns {image_column!r} and {label_column!r}: "
                f"split {name!r} has {split.features}, and the labels of the first one are {first}. Give all splits "
                "the same columns and classes, or name other splits."
            )
    if isinstance(first, ClassLabel):
        names = values = first.names
    else:
        values = sorted(set().union(*(values_of(split, label_column) for split in raw.values())) - {None, -1})
        names = [str(value) for value in values]
    if len(names) < 2:
        raise ValueError(
            f"Dataset {source.path!r} has {len(names)} class ({', '.join(names)}) in column {label_column!r}; a "
            "classifier needs at least two."
        )
    order = {value: number for number, value in enumerate(values)}
    numbered = dict(raw)
    for name, split in raw.items():
        own = getattr(split.features[label_column], "names", None)
        if own != names:
            numbers = order if own is None else {number: order[each] for number, each in enumerate(own)}
            numbered[name] = renumbered(split, label_column, numbers, names)
    return numbered, names


def _kind(feature: Any) -> Any:
    """What labels of two splits have to have in common: names of classes, or integers or strings of any width."""
    if isinstance(feature, ClassLabel):
        return sorted(feature.names)
    dtype = feature.dtype if isinstance(feature, Value) else str(feature)
    if "string" in dtype:
        return "text"
    return "integer" if dtype.startswith(("int", "uint")) else dtype


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
        first = [", ".join(" ".join(name.split()) for name in side[:3]) for side in (model_names, label_names)]
        raise ValueError(
            f"The model has {len(model_names)} classes, the dataset {len(names)}, and they do not fit: the model's "
            f"are {first[0]}, ..., the dataset's {first[1]}, .... Choose a dataset of the model's classes, train it "
            "on this one, or rename classes that are the same."
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
