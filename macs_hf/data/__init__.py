"""Datasets: where they are, their splits and columns, decoding and augmenting images, streams."""

from ..randomness import KeyedDataset
from .images import ImageDataset
from .preparing import image_datasets, load_data, load_ood
from .sources import source_of
from .transforms import EvalTransform, TrainTransform, drop_unreadable


__all__ = [
    "EvalTransform",
    "ImageDataset",
    "KeyedDataset",
    "TrainTransform",
    "drop_unreadable",
    "image_datasets",
    "load_data",
    "load_ood",
    "source_of",
]
