"""What `train`, `evaluate` and `calibrate` do only on request: measure unknown images, and show mistakes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..data.images import ImageDataset
from ..data.sources import DatasetSource, source_of
from ..data.unknowns import UnknownImages, load_unknowns
from ..evaluation.gallery import write_gallery
from ..report.rows import SampleRows


def unknown_images(
    options: Any, source: DatasetSource, class_names: Sequence[str], processor: Any
) -> UnknownImages | None:
    """The images of `ood_dataset`, read now, so that mistakes are found before the long work."""
    if options.ood_dataset is None:
        if options.ood_split is not None:
            raise ValueError(
                f"ood_split={options.ood_split!r} is the split of a dataset: name it with ood_dataset=..."
            )
        return None
    return load_unknowns(
        source_of(options.ood_dataset),
        options.ood_split,
        source,
        class_names,
        processor,
        skip_bad_images=options.skip_bad_images,
        cache_bytes=options.cache_bytes,
    )


def gallery(options: Any, test: ImageDataset, rows: SampleRows, model: Any, folder: str | Path) -> list[Path]:
    """The path of the gallery, if one was asked for and there are mistakes."""
    if options.gallery is None:
        return []
    names = tuple(model.config.id2label[number] for number in range(model.config.num_labels))
    path = write_gallery(test, rows, names, folder, options.gallery)
    return [] if path is None else [path]
