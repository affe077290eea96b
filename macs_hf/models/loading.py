"""A Hub, timm or local image classifier with a head for given labels, and the processor that feeds it."""

from typing import Any

import timm
import torch
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModelForImageClassification,
    PreTrainedModel,
    RegNetConfig,
    RegNetForImageClassification,
    ResNetConfig,
    ResNetForImageClassification,
    TimmWrapperConfig,
    TimmWrapperImageProcessor,
    ViTImageProcessor,
)

from ..hub.reach import hub_needed, is_local
from .timm_size import changes_for_size


# The benchmark's seven backbones, as ImageNet-pretrained timm checkpoints on the Hub.
BACKBONES: dict[str, str] = {
    "resnet34": "timm/resnet34.a1_in1k",
    "resnet50": "timm/resnet50.a1_in1k",
    "convnext_tiny": "timm/convnext_tiny.fb_in1k",
    "efficientnet_b0": "timm/efficientnet_b0.ra_in1k",
    "mobilenetv3_small": "timm/mobilenetv3_small_100.lamb_in1k",
    "vit_small_patch16": "timm/vit_small_patch16_224.augreg_in21k_ft_in1k",
    "swin_tiny": "timm/swin_tiny_patch4_window7_224.ms_in1k",
}


# Networks that start from chance, for a CPU: the first for trials, the second for real images of 32 pixels.
FROM_SCRATCH = ("tiny", "small")


def model_id(name: str) -> str:
    """The Hub id behind a backbone's short name or a bare timm name; other ids and local paths as they are."""
    if is_local(name) or "/" in name:
        return name
    if name in BACKBONES:
        return BACKBONES[name]
    if timm.is_model(name) and (pretrained := timm.get_pretrained_cfg(name)) is not None and pretrained.hf_hub_id:
        return pretrained.hf_hub_id
    return name


def load_classifier(
    name: str, label_names: list[str], revision: str | None = None, image_size: int | None = None
) -> tuple[PreTrainedModel, Any]:
    """
    A classifier for `label_names` and its image processor.

    The networks of `FROM_SCRATCH`, and a head that replaces a pretrained one of another size, are drawn from torch's
    global generator.

    Args:
        name (`str`):
            One of `FROM_SCRATCH`, a backbone of `BACKBONES`, a timm name, a Hub id or a local folder.
        label_names (`list[str]`):
            The classes, in the order of their indices.
        revision (`str`, *optional*):
            Of the model on the Hub.
        image_size (`int`, *optional*):
            Height and width of the input in pixels, saved with the model. Only for timm models and `FROM_SCRATCH`.
            Defaults to what the model was trained with, and to 32 from scratch.
    """
    if image_size is not None and image_size < 1:
        raise ValueError(f"image_size={image_size} must be a positive number of pixels.")
    labels = dict(enumerate(label_names))
    naming = {"id2label": labels, "label2id": {label: index for index, label in labels.items()}}
    if name in FROM_SCRATCH:
        return _from_scratch(name, naming, image_size or 32)
    model, processor, info = _load(
        name, revision, image_size, num_labels=len(labels), ignore_mismatched_sizes=True, **naming
    )
    odd = sorted(key for key, _, shape in info["mismatched_keys"] if shape[:1] != (len(labels),))
    if odd:
        raise ValueError(
            f"{name!r} holds weights of other shapes than its config asks for: {', '.join(odd)}. Only a head may be "
            "replaced; correct its config.json, or choose another model."
        )
    fresh_head = info["missing_keys"] or info["mismatched_keys"]
    if fresh_head and hasattr(model.config, "calibration_temperature"):
        # It was fitted to, and folded into, the head that is gone.
        del model.config.calibration_temperature
    return model, processor


def load_pretrained(name: str, revision: str | None = None) -> tuple[PreTrainedModel, Any]:
    """A classifier as it was saved, head and all, and its image processor."""
    model, processor, _ = _load(name, revision)
    return model, processor


def _load(
    name: str, revision: str | None, image_size: int | None = None, **kwargs: Any
) -> tuple[PreTrainedModel, Any, dict[str, Any]]:
    path = model_id(name)
    with hub_needed(f"Model {path!r}", path, "model", revision):
        if image_size is None:
            processor = AutoImageProcessor.from_pretrained(path, revision=revision)
        else:
            config = AutoConfig.from_pretrained(path, revision=revision)
            if not isinstance(config, TimmWrapperConfig):
                raise ValueError(
                    f"image_size={image_size} is for timm models, {' and '.join(FROM_SCRATCH)}; {name!r} is a "
                    f"{config.model_type} model of transformers, which brings its own size: leave image_size out."
                )
            kwargs |= changes_for_size(config, image_size)
            processor = TimmWrapperImageProcessor(kwargs["pretrained_cfg"], config.architecture)
        model, info = AutoModelForImageClassification.from_pretrained(
            path,
            revision=revision,
            output_loading_info=True,
            use_safetensors=True,
            **kwargs,  # never a pickle
        )
    if image_size is not None:
        _check_runs(model, name, processor.data_config["input_size"])
    return model, processor, info


@torch.no_grad()
def _check_runs(model: PreTrainedModel, name: str, input_size: tuple[int, int, int]) -> None:
    """Before anything is trained: strides may leave nothing of a small image, and patches may not divide it."""
    try:
        model(pixel_values=torch.zeros(1, *input_size))
    except Exception as error:
        raise ValueError(
            f"{name!r} does not run on images of image_size={input_size[-1]} ({error}). Choose a larger one, or a "
            "multiple of its patch size."
        ) from error


def _from_scratch(name: str, naming: dict[str, dict], image_size: int) -> tuple[PreTrainedModel, Any]:
    """
    A residual network of less than 0.1 million parameters.

    The stem of `tiny` reduces the image four times, which is fast; that of `small` twice, for images of 32 pixels.
    """
    size = {"height": image_size, "width": image_size}
    processor = ViTImageProcessor(size=size, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    shape = {"embedding_size": 16, "hidden_sizes": [16, 32, 64], "depths": [1, 1, 1]}
    if name == "tiny":
        return ResNetForImageClassification(ResNetConfig(**shape, layer_type="basic", **naming)), processor
    # Groups as wide as its layers: blocks of ordinary convolutions.
    config = RegNetConfig(**shape, layer_type="x", groups_width=64, downsample_in_first_stage=False, **naming)
    return RegNetForImageClassification(config), processor
