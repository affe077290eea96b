"""A classifier and its processor in a folder that everyone can load them from."""

from os import PathLike
from typing import Any

from transformers import PreTrainedModel, TimmWrapperForImageClassification

from .timm_layout import save_in_timm_layout


# Files of weights that one saved model may have and the next one not, which would then be loaded in their place.
WEIGHT_FILES = ("model*.safetensors", "model*.safetensors.index.json", "adapter_model*", "pytorch_model*.bin*")


def save_classifier(model: PreTrainedModel, processor: Any, folder: str | PathLike) -> None:
    """Save weights, config and processor; a timm backbone in timm's own layout."""
    if isinstance(model, TimmWrapperForImageClassification):
        save_in_timm_layout(model, folder, processor.data_config)  # its config.json describes the processor too
    else:
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
