"""A Hub, timm or local image classifier with a head for given labels, and the processor that feeds it."""

from typing import Any

import timm
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    PreTrainedModel,
    ResNetConfig,
    ResNetForImageClassification,
    ViTImageProcessor,
)

from .hub import hub_needed, is_local


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
    A classifier for `label_names` and its image processor; `tiny` is a small ResNet from scratch.

    A pretrained head of another size is replaced by a fresh one, drawn from torch's global generator.
    """
    labels = dict(enumerate(label_names))
    naming = {"id2label": labels, "label2id": {label: index for index, label in labels.items()}}
    if name == "tiny":
        return _tiny(naming, image_size or 32)
    if image_size is not None:
        raise ValueError(f"image_size={image_size} is for the model `tiny`; {name!r} brings its own image size.")
    model, processor, info = _load(name, revision, num_labels=len(labels), ignore_mismatched_sizes=True, **naming)
    fresh_head = info["missing_keys"] or info["mismatched_keys"]
    if fresh_head and hasattr(model.config, "calibration_temperature"):
        # It was fitted to, and folded into, the head that is gone.
        del model.config.calibration_temperature
    return model, processor


def load_pretrained(name: str, revision: str | None = None) -> tuple[PreTrainedModel, Any]:
    """A classifier as it was saved, head and all, and its image processor."""
    model, processor, _ = _load(name, revision)
    return model, processor


def _load(name: str, revision: str | None, **kwargs: Any) -> tuple[PreTrainedModel, Any, dict[str, Any]]:
    path = model_id(name)
    with hub_needed(f"Model {path!r}", path, "model", revision):
        processor = AutoImageProcessor.from_pretrained(path, revision=revision)
        model, info = AutoModelForImageClassification.from_pretrained(
            path,
            revision=revision,
            output_loading_info=True,
            use_safetensors=True,
            **kwargs,  # never a pickle
        )
    return model, processor, info


def _tiny(naming: dict[str, dict], image_size: int) -> tuple[PreTrainedModel, Any]:
    """About 0.1 million parameters; its stem reduces the image four times."""
    config = ResNetConfig(embedding_size=16, hidden_sizes=[16, 32, 64], depths=[1, 1, 1], layer_type="basic", **naming)
    processor = ViTImageProcessor(
        size={"height": image_size, "width": image_size}, image_mean=[0.5] * 3, image_std=[0.5] * 3
    )
    return ResNetForImageClassification(config), processor
