"""What a model and its processor are tried on before any data is read."""

from typing import Any

import torch
from PIL import Image
from transformers import PreTrainedModel


def check_image_size(image_size: int | None) -> None:
    if image_size is not None and image_size < 1:
        raise ValueError(f"image_size={image_size} must be a positive number of pixels.")


def check_processor(processor: Any, path: str) -> None:
    """Refuse a processor with numbers that no image can be prepared with."""
    try:
        processor([Image.new("RGB", (8, 8))], return_tensors="pt")
    except Exception as error:
        raise ValueError(
            f"The image processor of model {path!r} fails on a plain RGB image: {' '.join(str(error).split())}. "
            "Correct its preprocessor_config.json, or choose another image_size or model."
        ) from error


@torch.no_grad()
def check_runs(model: PreTrainedModel, name: str, image_size: int) -> None:
    """Before anything is trained: strides may leave nothing of a small image, and patches may not divide it."""
    try:
        model(pixel_values=torch.zeros(1, 3, image_size, image_size))
    except Exception as error:
        raise ValueError(
            f"{name!r} does not run on images of image_size={image_size} ({error}). Choose a larger one, a multiple "
            "of its patch size, or leave image_size out."
        ) from error
