"""Small classifiers with heads of all kinds, built from configs: what folding and saving are tested on."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForImageClassification,
    DeiTConfig,
    DeiTForImageClassificationWithTeacher,
    PreTrainedModel,
    ResNetConfig,
    SwinConfig,
    TimmWrapperConfig,
    ViTConfig,
)


SIZE, CLASSES, TEMPERATURE = 32, 5, 2.386
LABELS = {i: f"class {i}" for i in range(CLASSES)}
TINY_TRANSFORMER = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": SIZE,
}

# The backbones of the paper by their timm names, made small where timm lets them be.
TIMM = {
    "resnet34": {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]},
    "resnet50": {"layers": [1, 1, 1, 1], "channels": [4, 4, 8, 8]},
    "convnext_tiny": {"depths": [1, 1, 1, 1], "dims": [8, 8, 16, 16]},
    "efficientnet_b0": {},
    "mobilenetv3_small_100": {},
    "vit_small_patch16_224": {"img_size": SIZE, "depth": 1, "embed_dim": 16, "num_heads": 2},
    "swin_tiny_patch4_window7_224": {
        "img_size": SIZE,
        "embed_dim": 8,
        "depths": [1, 1],
        "num_heads": [1, 1],
        "window_size": 4,
        "patch_size": 4,
    },
}


def from_config(config) -> Callable[[], PreTrainedModel]:
    return lambda: AutoModelForImageClassification.from_config(copy.deepcopy(config))


MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    name: from_config(TimmWrapperConfig(architecture=name, model_args=arguments, id2label=LABELS))
    for name, arguments in TIMM.items()
} | {
    "vit": from_config(ViTConfig(**TINY_TRANSFORMER, id2label=LABELS)),
    "deit_distilled": lambda: DeiTForImageClassificationWithTeacher(DeiTConfig(**TINY_TRANSFORMER, id2label=LABELS)),
    "resnet": from_config(ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], id2label=LABELS)),
    "swin": from_config(
        SwinConfig(image_size=SIZE, embed_dim=8, depths=[1, 1], num_heads=[1, 1], window_size=4, id2label=LABELS)
    ),
}


def build(name: str) -> PreTrainedModel:
    """A model with weights that spread the logits, the head's bias included."""
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


@torch.no_grad()
def logits_of(model: nn.Module, images: Tensor) -> Tensor:
    output = model(images)
    return output if isinstance(output, Tensor) else output.logits
