"""Tiny models and data that the tests share: built from configs, a few thousand parameters, nothing downloaded."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from torch.utils.data import Dataset
from torchvision.transforms import v2
from transformers import (
    PreTrainedModel,
    ResNetConfig,
    ResNetForImageClassification,
    SwinConfig,
    SwinForImageClassification,
    TimmWrapperConfig,
    TimmWrapperForImageClassification,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)

from macs_hf import MaCSTrainer, MaCSTrainingArguments


NUM_LABELS = 4
SIZE = 32


def vit(dropout: float = 0.0) -> PreTrainedModel:
    config = ViTConfig(
        image_size=SIZE,
        patch_size=8,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=NUM_LABELS,
        hidden_dropout_prob=dropout,
    )
    return ViTForImageClassification(config)


def resnet() -> PreTrainedModel:
    config = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=NUM_LABELS
    )
    return ResNetForImageClassification(config)


def swin(drop_path: float = 0.0) -> PreTrainedModel:
    config = SwinConfig(
        image_size=SIZE,
        patch_size=4,
        embed_dim=8,
        depths=[1, 1],
        num_heads=[1, 2],
        window_size=4,
        drop_path_rate=drop_path,
        num_labels=NUM_LABELS,
    )
    return SwinForImageClassification(config)


def timm_wrapper(drop_path: float = 0.0) -> PreTrainedModel:
    """A small ConvNeXt of timm's: layer norms, no BatchNorm."""
    config = TimmWrapperConfig(
        architecture="convnext_atto",
        num_labels=NUM_LABELS,
        model_args={"depths": (1, 1, 1, 1), "dims": (8, 8, 16, 16), "drop_path_rate": drop_path},
    )
    return TimmWrapperForImageClassification(config)


def timm_resnet() -> PreTrainedModel:
    """A small ResNet of timm's, with BatchNorm."""
    config = TimmWrapperConfig(
        architecture="resnet10t",
        num_labels=NUM_LABELS,
        model_args={"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16)},
    )
    return TimmWrapperForImageClassification(config)


MODELS = {"vit": vit, "resnet": resnet, "swin": swin, "timm": timm_wrapper}


class Images(Dataset):
    """Fixed normalised images with labels that depend on them, so that there is something to learn."""

    def __init__(self, size: int = 32, seed: int = 0, image_size: int = SIZE) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(NUM_LABELS, (size,), generator=generator)
        self.images = torch.randn(size, 3, image_size, image_size, generator=generator)
        self.images += self.labels[:, None, None, None] / NUM_LABELS

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int | slice) -> dict[str, Any]:
        return {"pixel_values": self.images[index], "labels": self.labels[index]}


class Unlabelled(Images):
    def __getitem__(self, index: int | slice) -> dict[str, Any]:
        return {"pixel_values": self.images[index]}


class Augmented(Images):
    """Random crop and flip from torch's global generator, and a brightness from Python's, as user code does."""

    def __init__(self, size: int = 24) -> None:
        super().__init__(size)
        self.transform = v2.Compose([v2.RandomCrop(SIZE, padding=4), v2.RandomHorizontalFlip()])

    def __getitem__(self, index: int) -> dict[str, Any]:
        item = super().__getitem__(index)
        return item | {"pixel_values": self.transform(item["pixel_values"]) + random.random()}


class Drawn(Images):
    """Images with two numbers in the first pixels of each: its index, and one drawn from the global generators."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        item = super().__getitem__(index)
        image = item["pixel_values"].clone()
        image[0, 0, :2] = torch.tensor([index, torch.rand(()).item() + random.random()])
        return item | {"pixel_values": image}


class Spy(MaCSTrainer):
    """Keeps the seeds of the perturbations, and what [`Drawn`] drew for each sample: `{index: number}` per step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.seeds: list[int] = []
        self.drawn: list[dict[int, float]] = []
        super().__init__(*args, **kwargs)

    def _next_batch_seed(self) -> int:
        self.seeds.append(super()._next_batch_seed())
        return self.seeds[-1]

    def compute_loss(self, model: torch.nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if model.training:
            self.drawn.append({int(index): number for index, number in inputs["pixel_values"][:, 0, 0, :2].tolist()})
        return super().compute_loss(model, inputs, *args, **kwargs)


class StopAt(TrainerCallback):
    """Ends training after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        control.should_training_stop = state.global_step >= self.step


def build(name: str, seed: int = 0, **kwargs: Any) -> PreTrainedModel:
    torch.manual_seed(seed)
    return MODELS[name](**kwargs)


def arguments(output_dir: Path | str, **overrides: Any) -> MaCSTrainingArguments:
    defaults = {
        "method": "macs",  # all images have a perturbed view, and no statistics of pixels are needed
        "per_device_train_batch_size": 8,
        "learning_rate": 1e-2,
        "max_steps": 4,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
    }
    return MaCSTrainingArguments(str(output_dir), **defaults | overrides)


OF_THE_TRAINER = {"eval_dataset", "callbacks", "processing_class", "pixel_stats", "run_facts"}
OF_THE_TRAINER |= {"compute_loss_func", "compute_metrics", "preprocess_logits_for_metrics"}


def trainer(
    output_dir: Path | str, model: PreTrainedModel, data: Dataset | None = None, **overrides: Any
) -> MaCSTrainer:
    """A trainer with other arguments, of its own or of its training arguments."""
    own = {name: overrides.pop(name) for name in OF_THE_TRAINER & overrides.keys()}
    return MaCSTrainer(model=model, args=arguments(output_dir, **overrides), train_dataset=data or Images(), **own)


def logged(trainer: MaCSTrainer, key: str) -> list[float]:
    return [entry[key] for entry in trainer.state.log_history if key in entry]


def logits_of(trainer: MaCSTrainer, data: Images) -> np.ndarray:
    with torch.no_grad():
        return trainer.model.eval()(data.images).logits.numpy()


def overconfident(n: int, seed: int, classes: int = 4, noise: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and labels that are calibrated at a temperature of 2, if the noise is 1."""
    rng = np.random.default_rng(seed)
    logits = 8 * rng.normal(size=(n, classes))
    labels = (logits / 2 + noise * rng.gumbel(size=logits.shape)).argmax(1)
    return torch.tensor(logits, dtype=torch.float32), torch.tensor(labels)


def same_weights(left: torch.nn.Module, right: torch.nn.Module) -> bool:
    mine, theirs = left.state_dict(), right.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[key], theirs[key]) for key in mine)


def end_process(output_dir: Path | str, result: dict[str, Any]) -> None:
    """
    The last thing that each of several launched processes does: write what it found to `rank{n}.json`, and leave the
    group. Threads of gloo's that still hold a tensor while Python ends would abort the process.
    """
    state = PartialState()
    Path(output_dir, f"rank{state.process_index}.json").write_text(json.dumps(result))
    state.destroy_process_group()
