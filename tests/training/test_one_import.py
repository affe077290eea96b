"""A script for `Trainer`, in the shape of transformers' image-classification example, with one import changed."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from datasets import ClassLabel, Dataset, Features
from PIL import Image
from tiny import NUM_LABELS, build
from torchvision.transforms import Compose, Normalize, RandomHorizontalFlip, RandomResizedCrop, Resize, ToTensor
from transformers import EvalPrediction, TrainingArguments, ViTImageProcessor

from macs_hf import MaCSTrainer as Trainer


def photos(size: int) -> Dataset:
    rng = np.random.default_rng(size)
    images = [Image.fromarray(rng.integers(0, 256, (40, 48, 3), dtype=np.uint8)) for _ in range(size)]
    features = Features({"image": datasets.Image(), "labels": ClassLabel(names=[f"c{i}" for i in range(NUM_LABELS)])})
    return Dataset.from_dict(
        {"image": images, "labels": rng.integers(0, NUM_LABELS, size).tolist()}, features=features
    )


def collate(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    return {
        "pixel_values": torch.stack([example["pixel_values"] for example in examples]),
        "labels": torch.tensor([example["labels"] for example in examples]),
    }


def test_a_script_written_for_trainer(tmp_path: Path) -> None:
    processor = ViTImageProcessor(size={"height": 32, "width": 32})
    normalize = Normalize(processor.image_mean, processor.image_std)
    augment = Compose([RandomResizedCrop(32), RandomHorizontalFlip(), ToTensor(), normalize])
    prepare = Compose([Resize((32, 32)), ToTensor(), normalize])

    def train_transforms(batch: dict[str, list]) -> dict[str, list]:
        return batch | {"pixel_values": [augment(image.convert("RGB")) for image in batch["image"]]}

    def val_transforms(batch: dict[str, list]) -> dict[str, list]:
        return batch | {"pixel_values": [prepare(image.convert("RGB")) for image in batch["image"]]}

    train, validation = photos(24), photos(10)
    train.set_transform(train_transforms)
    validation.set_transform(val_transforms)

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        return {"accuracy": float((prediction.predictions.argmax(1) == prediction.label_ids).mean())}

    args = TrainingArguments(
        str(tmp_path),
        remove_unused_columns=False,
        num_train_epochs=1,
        logging_steps=1,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(
        model=build("vit"),
        args=args,
        train_dataset=train,
        eval_dataset=validation,
        compute_metrics=compute_metrics,
        processing_class=processor,
        data_collator=collate,
    )
    result = trainer.train()
    trainer.save_model()
    trainer.log_metrics("train", result.metrics)
    trainer.save_metrics("train", result.metrics)
    trainer.save_state()
    metrics = trainer.evaluate()
    trainer.save_metrics("eval", metrics)
    trainer.create_model_card(
        finetuned_from="some/base",
        tasks="image-classification",
        dataset="photos",
        tags=["image-classification", "vision"],
    )
    assert result.global_step == 3
    assert set(metrics) >= {"eval_loss", "eval_accuracy", "eval_ece"}
    first = trainer.state.log_history[0]
    assert first["loss"] > first["cross_entropy_loss"]
    for name in ("model.safetensors", "preprocessor_config.json", "README.md", "all_results.json"):
        assert (tmp_path / name).exists(), name
