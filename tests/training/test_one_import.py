"""A script for `Trainer`, in the shape of transformers' image-classification example, with one import changed."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from datasets import ClassLabel, Dataset, Features
from tiny import NUM_LABELS, build
from torchvision.transforms import Compose, Normalize, RandomResizedCrop, ToTensor
from transformers import EvalPrediction, TrainingArguments, ViTImageProcessor

from macs_hf import MaCSTrainer as Trainer


def photos(size: int, processor: ViTImageProcessor) -> Dataset:
    rng = np.random.default_rng(size)
    images = list(rng.integers(0, 256, (size, 40, 48, 3), dtype=np.uint8))
    features = Features({"image": datasets.Image(), "labels": ClassLabel(names=[f"c{i}" for i in range(NUM_LABELS)])})
    labels = rng.integers(0, NUM_LABELS, size).tolist()
    transform = Compose([RandomResizedCrop(32), ToTensor(), Normalize(processor.image_mean, processor.image_std)])

    def prepare(batch: dict[str, list]) -> dict[str, list]:
        return batch | {"pixel_values": [transform(image.convert("RGB")) for image in batch["image"]]}

    return Dataset.from_dict({"image": images, "labels": labels}, features=features).with_transform(prepare)


def collate(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    return {
        "pixel_values": torch.stack([example["pixel_values"] for example in examples]),
        "labels": torch.tensor([example["labels"] for example in examples]),
    }


def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(1) == prediction.label_ids).mean())}


def test_a_script_written_for_trainer(tmp_path: Path) -> None:
    processor = ViTImageProcessor(size={"height": 32, "width": 32})
    at_each_end = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "num_train_epochs": 1, "logging_steps": 1}
    args = TrainingArguments(
        str(tmp_path), remove_unused_columns=False, metric_for_best_model="accuracy", **at_each_end, **quiet
    )
    trainer = Trainer(
        model=build("vit"),
        args=args,
        train_dataset=photos(24, processor),
        eval_dataset=photos(10, processor),
        compute_metrics=compute_metrics,
        processing_class=processor,
        data_collator=collate,
    )
    result = trainer.train()
    trainer.save_model()
    trainer.log_metrics("train", result.metrics)
    trainer.save_metrics("train", result.metrics)
    trainer.save_state()
    assert set(trainer.evaluate()) >= {"eval_loss", "eval_accuracy", "eval_ece"}
    trainer.create_model_card(finetuned_from="some/base", dataset="photos", tags=["vision"])
    assert result.global_step == 3
    first = trainer.state.log_history[0]
    assert first["loss"] > first["cross_entropy_loss"]
    for name in ("model.safetensors", "preprocessor_config.json", "README.md", "all_results.json"):
        assert (tmp_path / name).exists(), name
