"""A timm backbone at another input size than its checkpoint's, by changes to its config alone.

The weights stay as they are. Convolutional networks take images of any size anyway; of the transformers, which timm
builds for one size, a ViT then interpolates its position embedding in every forward pass, and a Swin makes its
attention masks there. Both keep the shape of every weight, so that transformers and timm load what is saved.
"""

import copy
from collections.abc import Mapping
from typing import Any

import timm
from transformers import TimmWrapperConfig


# What makes the networks of a timm module take other sizes than the one they are built for.
_ANY_SIZE: dict[str, dict[str, bool]] = {
    "vision_transformer": {"dynamic_img_size": True},
    "vision_transformer_hybrid": {"dynamic_img_size": True},
    "deit": {"dynamic_img_size": True},
    "eva": {"dynamic_img_size": True},
    "swin_transformer": {"strict_img_size": False},
    "swin_transformer_v2": {"strict_img_size": False},
}

# Fields of `pretrained_cfg` for the original size only: its feature map, and the size and crop that timm tests with.
_SIZE_FIELDS = ("pool_size", "test_input_size", "test_crop_pct")


def changes_for_size(config: TimmWrapperConfig, image_size: int) -> dict[str, Any]:
    """
    The changes to a config, as keywords of `from_pretrained`, for square images of `image_size` pixels.

    The processor that follows from `pretrained_cfg` resizes the shorter side to `image_size` and crops nothing more.

    Args:
        config ([`~transformers.TimmWrapperConfig`]):
            That of a checkpoint, with its `pretrained_cfg`; not modified.
        image_size (`int`):
            Height and width of the input, in pixels.

    Raises:
        `ValueError`: for an architecture that timm builds for one size only.
    """
    section, arguments = copy.deepcopy(config.pretrained_cfg), dict(config.model_args or {})
    channels, *built_for = section["input_size"]
    if section.get("fixed_input_size") and built_for != [image_size, image_size]:
        family = timm.models.model_entrypoint(config.architecture.partition(".")[0]).__module__.rpartition(".")[2]
        if family not in _ANY_SIZE:
            raise ValueError(
                f"image_size={image_size}: timm builds {config.architecture!r} for {built_for[0]} pixels only. Leave "
                "image_size out, or take another backbone."
            )
        # Left to itself, timm would build the saved network for the new size: a Swin with smaller windows computes
        # something else.
        arguments = {"img_size": built_for} | arguments | _ANY_SIZE[family]
        section["fixed_input_size"] = False
    section = {key: value for key, value in section.items() if key not in _SIZE_FIELDS}
    section |= {"input_size": [channels, image_size, image_size], "crop_pct": 1.0}
    return {"model_args": arguments, "pretrained_cfg": section}  # timm 1.0.31 fails on null


def takes_any_size(arguments: Mapping[str, Any]) -> bool:
    """Whether a network built with these `model_args` takes other sizes than their `img_size`."""
    return bool(arguments.get("dynamic_img_size")) or not arguments.get("strict_img_size", True)
