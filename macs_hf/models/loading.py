"""A Hub, timm or local image classifier with a head for given labels, and the processor that feeds it."""

import os
import re
from pathlib import Path
from typing import Any

import timm
import torch
from PIL import Image
from torch import nn
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
    TimmWrapperForImageClassification,
    TimmWrapperImageProcessor,
    ViTImageProcessor,
)
from transformers.utils import logging

from ..exceptions import ArgumentError
from ..hub import check_place, hub_needed, is_local
from ..pixels import PixelStats, preparation
from ..report.report import TEMPERATURE_FIELD, forget_calibration
from .timm_layout import changes_for_size, timm_pretrained_cfg


logger = logging.get_logger(__name__)

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

# Small networks with random weights, for a CPU, and the size of their images: the first for trials, the others for
# real images. CIFAR's are enlarged to 64 pixels for `medium`, or else its stem would lose their details.
FROM_SCRATCH = {"tiny": 32, "small": 32, "medium": 64}


def model_id(name: str) -> str:
    """The Hub id behind a backbone's short name or a bare timm name; other ids and local paths are returned."""
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
            Height and width of the input in pixels, saved with the model. Defaults to what the model was trained with,
            and to 32 from scratch.
    """
    _check_arguments(name, revision, image_size)
    labels = dict(enumerate(label_names))
    naming = {"id2label": labels, "label2id": {label: index for index, label in labels.items()}}
    if name in FROM_SCRATCH:
        return _from_scratch(name, naming, image_size or FROM_SCRATCH[name])
    model, processor, info = _load(name, revision, image_size, num_labels=len(labels), **naming)
    if info["missing_keys"] or info["mismatched_keys"]:
        forget_calibration(model.config)  # it was that of the head that is gone
    return model, processor


def load_pretrained(
    name: str, revision: str | None = None, image_size: int | None = None
) -> tuple[PreTrainedModel, Any]:
    """
    A classifier with the head it was saved with, and its image processor.

    Args:
        name (`str`): A backbone of `BACKBONES`, a timm name, a Hub id or a local folder.
        revision (`str`, *optional*): Of the model on the Hub.
        image_size (`int`, *optional*): Height and width of the input in pixels, if it was trained at another size than
            its config says.
    """
    _check_arguments(name, revision, image_size)
    if name in FROM_SCRATCH and not is_local(name):
        raise ArgumentError("model", "has random weights, so there is nothing to measure. Train it first.", name)
    model, processor, info = _load(name, revision, image_size)
    absent = sorted(set(info["missing_keys"]) & {key for key, _ in model.named_parameters()})
    if absent:
        raise ValueError(
            f"{name!r} has no weights for {', '.join(absent[:5])}: it is not a trained classifier. Train it first, or "
            "choose another model."
        )
    _warn_of_size(model, processor, name, image_size, info["stored_size"])
    return model, processor


def _check_arguments(name: str, revision: str | None, image_size: int | None) -> None:
    if image_size is not None and image_size < 1:
        raise ArgumentError("image_size", "must be a positive number of pixels.", image_size)
    if revision is not None and (name in FROM_SCRATCH or is_local(name)):
        raise ArgumentError("revision", f"does not exist: model {name!r} is not on the Hub. Leave it out.", revision)


def _load(
    name: str, revision: str | None, image_size: int | None, **kwargs: Any
) -> tuple[PreTrainedModel, Any, dict[str, Any]]:
    if not name.strip():
        raise ArgumentError("model", "is empty: give a backbone, a timm name, a Hub id or a folder.", name)
    check_place("model", name, [*FROM_SCRATCH, *BACKBONES, *timm.list_models(), *timm.list_pretrained()])
    path = model_id(name)
    if is_local(path) and not Path(path, "config.json").is_file():
        raise FileNotFoundError(f"{path!r} is not the folder of a saved model: it has no config.json.")
    try:
        with hub_needed(f"Model {path!r}", path, "model", revision):
            model, processor, info = _from_pretrained(path, revision, image_size, **kwargs)
    except OSError as error:
        if "named model.safetensors" in str(error):
            raise FileNotFoundError(
                f"Model {path!r} has no model.safetensors. Weights in other files, such as pickles, which may run "
                "code, are not loaded: convert them, or choose another model."
            ) from error
        if damaged := re.search(r"([^/\\]+)' is not a valid JSON file", str(error)):  # a path in the cache
            raise ValueError(f"Model {path!r} cannot be loaded: its {damaged[1]} is not a valid JSON file.") from error
        raise  # another missing file or the Hub, which say so themselves
    except Exception as error:
        if "trust_remote_code" in str(error):
            reason = "needs code from its own repository, which is never run"
        elif isinstance(error, ValueError):
            raise
        else:  # damaged weights, or a config with values of the wrong kind, make transformers raise nearly anything
            reason = f"is damaged, or cannot be loaded ({type(error).__name__}: {' '.join(str(error).split())})"
        raise ValueError(f"Model {path!r} {reason}. Choose another one.") from error
    # Only a head may have another shape, that of other classes.
    classes = (kwargs.get("num_labels"),)
    if odd := sorted(key for key, _, shape in info["mismatched_keys"] if shape[:1] != classes):
        raise ValueError(
            f"{name!r} holds weights of other shapes than its config asks for: {', '.join(odd[:5])}. Only training "
            "replaces a head, and nothing else; correct its config.json, or choose another model."
        )
    _check_runs(model, processor, path, image_size)
    return model, processor, info


def _from_pretrained(
    path: str, revision: str | None, image_size: int | None, **kwargs: Any
) -> tuple[PreTrainedModel, Any, dict[str, Any]]:
    source = {"revision": revision, "trust_remote_code": False}
    os.environ["DISABLE_SAFETENSORS_CONVERSION"] = "1"  # or else a bot on the Hub is asked to convert pickles
    config = AutoConfig.from_pretrained(path, **source)
    stored_size = None  # that of the processor, if another is wanted
    if isinstance(config, TimmWrapperConfig) and config.model_args:
        # timm writes the first since 1.0.31, and transformers fails on it: it passes the number of labels itself. The
        # second would open any file of this machine.
        unwanted = ("num_classes", "checkpoint_path")
        config.model_args = {key: value for key, value in config.model_args.items() if key not in unwanted}
        kwargs["model_args"] = config.model_args
    if isinstance(config, TimmWrapperConfig) and image_size is not None:
        stored_size = tuple(config.pretrained_cfg["input_size"][1:])
        kwargs |= changes_for_size(config, image_size)
        processor = TimmWrapperImageProcessor(kwargs["pretrained_cfg"], config.architecture)
    else:
        processor = AutoImageProcessor.from_pretrained(path, **source)
        if image_size is not None:
            stored_size, processor = preparation(processor).size, resized_processor(processor, image_size)
    model, info = AutoModelForImageClassification.from_pretrained(
        path,
        **source,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # they are looked at below
        use_safetensors=True,  # never a pickle
        dtype="float32",  # images are, and what is trained or measured in 16 bits loses digits of its calibration
        **kwargs,
    )
    return model, processor, info | {"stored_size": stored_size}


def _warn_of_size(
    model: PreTrainedModel, processor: Any, name: str, image_size: int | None, stored_size: tuple[int, int] | None
) -> None:
    """Say what the files show: a temperature that is for another size, or a config and a processor that disagree."""
    stated, calibrated = getattr(model.config, "image_size", None), TEMPERATURE_FIELD in vars(model.config)
    if image_size is not None and calibrated and stored_size not in (None, (image_size, image_size)):
        logger.warning(
            f"{name!r} is calibrated (its config has a temperature) for images of {stored_size[0]} x {stored_size[1]} "
            f"pixels. With image_size={image_size} its probabilities may be off."
        )
    stats = PixelStats.from_processor(processor) if image_size is None and isinstance(stated, int) else None
    if stats is not None and (made := preparation(processor).size) not in (None, (stated, stated)):
        logger.warning(
            f"The config of {name!r} says image_size={stated}, but its processor makes images of {made[0]} x "
            f"{made[1]} pixels, which are used. If it was trained at another size, pass image_size=..."
        )


def _from_scratch(name: str, naming: dict[str, dict], image_size: int) -> tuple[PreTrainedModel, Any]:
    """
    A residual network of 0.3 million parameters (`medium`), or of less than 0.1 million.

    The stem of `small` halves the image, for images of 32 pixels; that of the others quarters it, which is fast.
    """
    size = {"height": image_size, "width": image_size}
    processor = ViTImageProcessor(size=size, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    width = 32 if name == "medium" else 16
    shape = {"embedding_size": width, "hidden_sizes": [width, 2 * width, 4 * width], "depths": [1, 1, 1]}
    if name != "small":
        return ResNetForImageClassification(ResNetConfig(**shape, layer_type="basic", **naming)), processor
    # Groups as wide as its layers: blocks of ordinary convolutions.
    config = RegNetConfig(**shape, layer_type="x", groups_width=64, downsample_in_first_stage=False, **naming)
    return RegNetForImageClassification(config), processor


def resized_processor(processor: Any, image_size: int) -> Any:
    """A processor that resizes the shorter side to `image_size` pixels and crops nothing more than a square of it."""
    if isinstance(processor, TimmWrapperImageProcessor):
        size = (processor.data_config["input_size"][0], image_size, image_size)
        changes = {"input_size": size, "crop_pct": 1.0}
        return TimmWrapperImageProcessor(processor.data_config | changes, processor.architecture)
    settings = processor.to_dict()
    changes: dict[str, Any] = {"size": {name: image_size for name in settings["size"] if name != "longest_edge"}}
    if settings.get("crop_size"):
        changes["crop_size"] = {"height": image_size, "width": image_size}
    if settings.get("crop_pct"):
        changes["crop_pct"] = 1.0
    resized = type(processor).from_dict(settings | changes)
    if (size := preparation(resized).size) != (image_size, image_size):
        raise ValueError(
            f"image_size={image_size}: {type(processor).__name__} with size {changes['size']} gives images of "
            f"{size or 'varying'} pixels. Leave image_size out."
        )
    return resized


@torch.no_grad()
def _check_runs(model: PreTrainedModel, processor: Any, path: str, image_size: int | None) -> None:
    """Before any data is read: a processor may have wrong numbers, and a network may not run at another size."""
    try:
        processor([Image.new("RGB", (8, 8))], return_tensors="pt")
        if image_size is not None:
            model(pixel_values=torch.zeros(1, 3, image_size, image_size))
    except Exception as error:  # strides may leave nothing of a small image, and patches may not divide it
        raise ValueError(
            f"Model {path!r} does not run on a plain RGB image with image_size={image_size} "
            f"({' '.join(str(error).split())}). Correct its preprocessor_config.json, or choose another image_size, a "
            "multiple of its patch size."
        ) from error


def processor_of(model: nn.Module, processor: Any) -> Any:
    """The processor that is saved with the model; the config of a timm model describes one."""
    model = getattr(model, "module", model)  # in several processes, the model is wrapped
    if processor is None and isinstance(model, TimmWrapperForImageClassification):
        return TimmWrapperImageProcessor(timm_pretrained_cfg(model), model.config.architecture)
    return processor


def found_pixel_stats(model: nn.Module, processor: Any) -> PixelStats | None:
    """
    How images were normalised, as far as can be known without the network: from the processor that a trainer was
    given, the config of a timm model, or the processor that lies beside the model's weights on this machine.
    """
    processor = processor_of(model, processor)
    if processor is None and isinstance(timm_config := getattr(model, "pretrained_cfg", None), dict):  # bare
        return PixelStats(timm_config["mean"], timm_config["std"]) if "std" in timm_config else None
    config = getattr(model, "config", None)
    name = getattr(config, "_name_or_path", None)
    if processor is None and name:
        try:
            processor = AutoImageProcessor.from_pretrained(
                name,
                revision=getattr(config, "_commit_hash", None) if not Path(name).is_dir() else None,
                local_files_only=True,
                trust_remote_code=False,
            )
        except Exception:  # none is there, or it cannot be read: whatever the reason, nothing is known
            return None
    return PixelStats.from_processor(processor)


def check_single_label(model: nn.Module) -> None:
    """Refuse a model that does not choose one of several classes for each image."""
    config = getattr(model, "config", None)
    problem_type, num_labels = (getattr(config, name, None) for name in ("problem_type", "num_labels"))
    if problem_type not in (None, "single_label_classification") or (num_labels is not None and num_labels < 2):
        raise ValueError(
            f"problem_type={problem_type!r}, num_labels={num_labels}: a model that chooses one of two or more classes "
            "for each image is needed, with problem_type='single_label_classification'."
        )
