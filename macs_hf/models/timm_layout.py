"""Save a timm backbone wrapped by transformers so that timm itself can load it.

`TimmWrapperForImageClassification.save_pretrained` writes a folder that timm cannot read whenever the model was built
from a config, or reloaded from a folder written that way: the weights keep the prefix `timm_model.`, and `config.json`
has no `pretrained_cfg`, which `timm.create_model("local-dir:...")` and `AutoImageProcessor` need. The folder written
here has timm's key names and a complete `config.json`: `AutoModelForImageClassification`, `AutoImageProcessor`,
`pipeline` and timm all load it. Other keys of the config, such as `calibration_temperature`, are kept by transformers
and ignored by timm.
"""

import copy
import dataclasses
import os
from collections.abc import Mapping
from os import PathLike
from typing import Any

import timm
import torch
from timm.models import PretrainedCfg, filter_pretrained_cfg
from transformers import PreTrainedModel, TimmWrapperConfig, TimmWrapperForImageClassification


# These describe the weights a backbone started from, not the ones being saved. Two of them do harm: `label_offset`
# makes timm cut classes off the head, `custom_load` sends it to a loader of foreign file formats.
_ORIGIN_FIELDS = frozenset({"architecture", "tag", "state_dict", "custom_load", "label_offset", "num_classes"})


def timm_pretrained_cfg(
    model: TimmWrapperForImageClassification, data_config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """
    The `pretrained_cfg` section of `config.json`: how timm and `AutoImageProcessor` prepare images for this model.

    It starts from the section the checkpoint came with, or else timm's own for the architecture, without the fields
    that describe the weights of origin; `data_config`, that of a `TimmWrapperImageProcessor`, is the preprocessing the
    model was trained with, if it differs.
    """
    # A config that came with a checkpoint has the section as an attribute, one made by hand does not.
    own = model.config.to_dict().get("pretrained_cfg")
    section = own or model.timm_model.pretrained_cfg
    known = {field.name for field in dataclasses.fields(PretrainedCfg)} - _ORIGIN_FIELDS
    section = filter_pretrained_cfg({k: v for k, v in section.items() if k in known}, remove_source=True)
    section.update(data_config or {})

    arguments = model.config.model_args or {}
    channels, *size = section.get("input_size", (3, 224, 224))
    stated = own or "input_size" in (data_config or {})
    any_size = arguments.get("dynamic_img_size") or not arguments.get("strict_img_size", True)
    if "img_size" in arguments and not (stated and any_size):
        side = arguments["img_size"]
        size = [side, side] if isinstance(side, int) else list(side)
    channels = arguments.get("in_chans", channels)
    section["input_size"] = [channels, *size]
    if channels != 3:
        # timm would take the first convolution for one of three channels and adapt or discard it.
        section["first_conv"] = None
    for name in ("mean", "std"):
        values = section[name]
        if len(values) not in (1, channels):  # timm repeats a single value, and refuses any other mismatch
            section[name] = [sum(values) / len(values)]
    return section


def save_in_timm_layout(
    model: TimmWrapperForImageClassification,
    save_directory: str | os.PathLike,
    data_config: Mapping[str, Any] | None = None,
    state_dict: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """
    Save a wrapped timm model as `model.safetensors` and `config.json`, which timm and transformers both load; neither
    it nor its config changes.

    Args:
        model ([`~transformers.TimmWrapperForImageClassification`]): The wrapped model.
        save_directory (`str` or `os.PathLike`): The folder.
        data_config (`Mapping[str, Any]`, *optional*): See [`timm_pretrained_cfg`].
        state_dict (`Mapping[str, torch.Tensor]`, *optional*): Weights gathered elsewhere, with or without the prefix
            of transformers. Defaults to those of `model`.
    """
    state_dict = model.state_dict() if state_dict is None else state_dict
    own_names = {key.removeprefix("timm_model."): tensor for key, tensor in state_dict.items()}
    model.save_pretrained(save_directory, state_dict=own_names)
    timm_config(model, data_config).save_pretrained(save_directory)


def timm_config(
    model: TimmWrapperForImageClassification, data_config: Mapping[str, Any] | None = None
) -> TimmWrapperConfig:
    """A copy of the model's config with what timm and `AutoImageProcessor` need; see [`timm_pretrained_cfg`]."""
    config = copy.deepcopy(model.config)
    config.pretrained_cfg = timm_pretrained_cfg(model, data_config)
    config.model_args = config.model_args or {}  # timm fails on a null since 1.0.31
    # A config loaded from a checkpoint keeps that checkpoint's label names even when the model has new classes, and
    # prefers them to `id2label` when it is written.
    config.label_names = [config.id2label[i] for i in range(config.num_labels)]
    return config


# ---- Sizes ----
# A timm backbone at another input size than its checkpoint's, by changes to its config alone.
#
# The weights stay as they are. Convolutional networks take images of any size anyway; of the transformers, which timm
# builds for one size, a ViT then interpolates its position embedding in every forward pass, and a Swin makes its
# attention masks there. Both keep the shape of every weight, so that transformers and timm load what is saved.


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
    The changes to a checkpoint's config, as keywords of `from_pretrained`, for square images of `image_size` pixels.
    The processor that follows from them resizes the shorter side to `image_size` and crops nothing more. Architectures
    that timm builds for one size only are refused.
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


# ---- Saving ----
# A classifier and its processor in a folder that everyone can load them from.


# Files of weights that one saved model may have and the next one not, which would then be loaded in their place.
WEIGHT_FILES = ("model*.safetensors", "model*.safetensors.index.json", "adapter_model*", "pytorch_model*.bin*")


def save_classifier(model: PreTrainedModel, processor: Any, folder: str | PathLike) -> None:
    """Save weights, config and processor; a timm backbone in timm's own layout."""
    if isinstance(model, TimmWrapperForImageClassification):
        save_in_timm_layout(model, folder, processor.data_config)  # its config.json describes the processor too
    else:
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
