"""How images become the input of an exported file: `config.json` and `preprocessor_config.json` beside it."""

import math
from os import PathLike
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import BitImageProcessor, PreTrainedModel, TimmWrapperForImageClassification
from transformers import TimmWrapperImageProcessor as TimmProcessor

from ..models.timm_layout import timm_config


RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
CROPS = 8  # of each sample photograph


def save_preprocessing(model: PreTrainedModel, processor: Any, folder: str | PathLike) -> None:
    """Write the config of the model, with its classes, and the description of its processor."""
    is_timm = isinstance(model, TimmWrapperForImageClassification)
    config = timm_config(model, processor.data_config) if is_timm else model.config
    config.save_pretrained(folder)
    described_processor(processor).save_pretrained(folder)


def described_processor(processor: Any) -> Any:
    """
    A processor that `preprocessor_config.json` can describe, which transformers.js and Optimum read.

    timm's own is code, known by the fields of `pretrained_cfg`; an equal one is made from them. Others are returned.

    Raises:
        `ValueError`: For a way of cropping that no description has.
    """
    if not isinstance(processor, TimmProcessor):
        return processor
    settings = processor.data_config
    _, height, width = settings["input_size"]
    resized = [math.floor(side / settings["crop_pct"]) for side in (height, width)]
    if settings["crop_mode"] == "center" and height == width:
        size = {"shortest_edge": resized[0]}
    elif settings["crop_mode"] == "squash":
        size = {"height": resized[0], "width": resized[1]}
    else:
        raise ValueError(
            f"crop_mode={settings['crop_mode']!r} for images of {height} x {width} pixels has no description that "
            "other runtimes read. Export a model of square images whose crop_mode is 'center' or 'squash'."
        )
    return BitImageProcessor(
        size=size,
        crop_size={"height": height, "width": width},
        resample=RESAMPLING[settings["interpolation"]],
        image_mean=list(settings["mean"]),
        image_std=list(settings["std"]),
    )


def sample_photographs(processor: Any) -> torch.Tensor:
    """Crops of the two photographs that come with scikit-learn, prepared: real images where no dataset is given."""
    from sklearn.datasets import load_sample_images

    draws = np.random.default_rng(0)
    crops = []
    for photograph in load_sample_images().images:
        height, width, _ = photograph.shape
        for _ in range(CROPS):
            side = int(draws.integers(64, height))
            top, left = int(draws.integers(height - side)), int(draws.integers(width - side))
            crops.append(Image.fromarray(photograph[top : top + side, left : left + side]))
    return torch.cat([processor(crop, return_tensors="pt")["pixel_values"] for crop in crops]).float()
