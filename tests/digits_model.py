"""A classifier of the embedded digits, made in a second: random features, and a head that is too sure of itself."""

import functools
from pathlib import Path
from typing import Any

import torch
from sklearn.linear_model import LogisticRegression
from torch.utils.data import DataLoader

from macs_hf.calibration import fit_temperature
from macs_hf.data import ImageDataset, load_data
from macs_hf.data.preparing import held_out
from macs_hf.models import load_classifier
from macs_hf.models.timm_layout import save_classifier


OVERCONFIDENT = 3.0


def save_digits_model(folder: Path, temperature: float = OVERCONFIDENT) -> None:
    """Save it into `folder`; on the validation split it needs this temperature."""
    save_classifier(*_made(temperature), folder)


@functools.cache
def _made(temperature: float) -> tuple[torch.nn.Module, Any]:
    splits = load_data("digits")
    torch.manual_seed(0)
    model, processor = load_classifier("tiny", splits.label_names)
    model.eval()
    train = held_out(splits._replace(validation=splits.train), "validation", processor)
    validation = held_out(splits, "validation", processor)
    features, labels = _features(model, train)
    spread = features.std(0).clamp(min=1e-3)  # some features are dead
    fitted = LogisticRegression(C=0.1, max_iter=1000).fit((features / spread).numpy(), labels.numpy())
    head = model.classifier[1]
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(fitted.coef_) / spread)
        head.bias.copy_(torch.from_numpy(fitted.intercept_))
        features, labels = _features(model, validation)
        scale = temperature / fit_temperature(head(features), labels)
        head.weight *= scale
        head.bias *= scale
    return model, processor


@torch.inference_mode()
def _features(model: torch.nn.Module, dataset: ImageDataset) -> tuple[torch.Tensor, torch.Tensor]:
    parts, labels = [], []
    for batch in DataLoader(dataset, batch_size=256):
        parts.append(model.resnet(batch["pixel_values"]).pooler_output.flatten(1))
        labels.append(batch["labels"])
    return torch.cat(parts), torch.cat(labels)
