"""Bad input gets one clear error that names the value and the fix, before training where it can be known."""

from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from tiny import NUM_LABELS, Images, arguments, build, trainer
from transformers import TrainerCallback, ViTConfig, ViTForImageClassification

from macs_hf import METHODS, MaCSTrainer


class Relabelled(Images):
    """One sample has the label given."""

    def __init__(self, label: int, index: int = 0) -> None:
        super().__init__()
        self.labels[index] = label


def column(labels: list) -> datasets.Dataset:
    """Of `datasets`, whose labels are read before the first step."""
    data = datasets.Dataset.from_dict({"pixel_values": Images(8).images.numpy(), "label": labels})
    return data.with_format("torch")


class Only(Images):
    """Samples with other labels than class numbers, or none."""

    def __init__(self, **labels: Any) -> None:
        super().__init__()
        self.given = labels

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"pixel_values": self.images[index]} | self.given


SOFT = torch.full((NUM_LABELS,), 0.25)
SEVERAL = torch.tensor([1.0, 1.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("data", "settings", "named"),
    [
        (Relabelled(-1), {}, r"Label -1 of row \d+ .*\[0, 4\)"),
        (Relabelled(-100), {}, r"Label -100 of row \d+"),
        (Relabelled(NUM_LABELS), {}, r"Label 4 of row \d+"),
        (column([0, 1, 2, 3, 0, 1, 2, 9]), {}, r"Label 9 of row 7 in column 'label' of the training set"),
        (column(["ant", "bee"] * 4), {}, r"'label' of the training set holds 'ant'.*cast_column"),
        (column([0, 1, None, 3] * 2), {}, r"'label' of the training set holds None.* 2 of 8"),
        (Only(), {}, r"`labels`, but has \['pixel_values'\]"),
        (Only(labels=SOFT), {}, r"lambda_margin=0"),
        (Only(labels=SEVERAL), {"lambda_margin": 0.0}, r"multi-label.*one class number per image"),
        (Only(labels=SEVERAL.long()), {}, r"One class per image"),
        (Images(), METHODS["augmix"], r"lambda_jsd=12.0 .*augmix_pixel_values"),
    ],
)
def test_what_cannot_be_trained_on_is_named(data: Any, settings: dict[str, Any], named: str, tmp_path: Path) -> None:
    run = trainer(tmp_path, build("vit"), data, **settings)
    with pytest.raises(ValueError, match=named):
        run.train()
    assert run.state.global_step == 0 or isinstance(data, Relabelled)  # the only one that is not seen at once


def test_jpeg_without_statistics_of_pixels(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"perturbation='jpeg'.*processing_class.*PixelStats"):
        trainer(tmp_path, build("vit"), perturbation="jpeg")


def test_several_gpus_without_a_launcher(tmp_path: Path) -> None:
    args = arguments(tmp_path)
    assert args.n_gpu == 0  # sets up the devices, so that the next line is not overwritten
    args._n_gpu = 4
    with pytest.raises(ValueError, match=r"4 GPUs are visible to one process.*accelerate launch"):
        MaCSTrainer(model=build("vit"), args=args, train_dataset=Images())
    MaCSTrainer(model=build("vit"), args=args)  # what is only measured has no views


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_labels": 1}, "num_labels=1"),
        ({"problem_type": "multi_label_classification"}, "multi_label_classification"),
    ],
)
def test_models_that_are_no_single_label_classifiers(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    config = ViTConfig(
        image_size=32, patch_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=1, **settings
    )
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path, ViTForImageClassification(config))


class Poison(TrainerCallback):
    """Makes a weight infinite after a step, as a diverging optimiser would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step == self.step:
            with torch.no_grad():
                model.classifier.weight.fill_(float("nan"))


def test_nan_loss_stops_at_the_next_log_with_the_steps_and_the_last_good_checkpoint(tmp_path: Path) -> None:
    run = trainer(tmp_path, build("vit"), max_steps=12, logging_steps=4, save_strategy="steps", save_steps=3)
    run.add_callback(Poison(5))
    with pytest.raises(FloatingPointError, match=r"between steps 4 and 6.*checkpoint-3"):
        run.train()
    assert not (tmp_path / "checkpoint-6").exists()

    resumed = trainer(tmp_path, build("vit"), max_steps=12)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 12


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    run = trainer(tmp_path, build("vit"), max_steps=6, logging_steps=6, save_strategy="steps", save_steps=3)
    run.add_callback(Poison(3))  # the loss of step 3 was fine
    with pytest.raises(FloatingPointError, match=r"between steps 0 and 3.*none was saved"):
        run.train()
    assert not list(tmp_path.glob("checkpoint-*"))


def test_calibrate_refuses_the_training_set(tmp_path: Path) -> None:
    data = Images()
    run = trainer(tmp_path, build("vit"), data)
    with pytest.raises(ValueError, match="fitted on the training set"):
        run.calibrate(data)


def test_labels_of_other_integer_types_are_class_numbers_and_other_shapes_are_refused(tmp_path: Path) -> None:
    run = trainer(tmp_path, build("vit"))
    run.model.train()
    images, labels = Images(4).images, Images(4).labels
    losses = []
    for given in (labels, labels.int()):
        run._micro_step = (-1, 0)
        losses.append(run.compute_loss(run.model, {"pixel_values": images, "labels": given}))
    assert torch.equal(*losses)
    for given in (labels.float(), labels[:, None]):
        with pytest.raises(ValueError, match=r"`labels` of shape .* are neither class numbers"):
            run.compute_loss(run.model, {"pixel_values": images, "labels": given})


def test_a_dataset_dict_is_not_a_training_set(tmp_path: Path) -> None:
    splits = datasets.DatasetDict(train=datasets.Dataset.from_dict({"labels": [0]}))
    with pytest.raises(ValueError, match=r"DatasetDict of the splits \['train'\].*data\['train'\]"):
        MaCSTrainer(model=build("vit"), args=arguments(tmp_path), train_dataset=splits)


def test_divergence_is_told_before_an_evaluation_trips_over_it(tmp_path: Path) -> None:
    args = arguments(tmp_path, max_steps=6, logging_steps=6, eval_strategy="steps", eval_steps=3)
    run = MaCSTrainer(
        model=build("vit"), args=args, train_dataset=Images(), eval_dataset=Images(8), callbacks=[Poison(3)]
    )
    with pytest.raises(FloatingPointError, match="between steps 0 and 3"):
        run.train()


@pytest.mark.parametrize("wrap", [lambda logits: {"logits": logits}, lambda logits: (logits,), lambda logits: None])
def test_models_that_return_no_logits(wrap: Any, tmp_path: Path) -> None:
    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = build("vit")

        def forward(self, pixel_values: torch.Tensor) -> Any:
            return wrap(self.model(pixel_values).logits)

    run = trainer(tmp_path, Wrapped())
    for training in (True, False):
        with pytest.raises(TypeError, match=type(wrap(None)).__name__):
            run.compute_loss(run.model.train(training), Images(4)[:])


def test_evaluation_never_drops_samples(tmp_path: Path) -> None:
    run = trainer(tmp_path, build("vit"), dataloader_drop_last=True, per_device_eval_batch_size=8)
    assert len(run.predict(Images(13)).predictions) == 13
    assert run.args.dataloader_drop_last


def test_processes_that_do_not_know_of_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = arguments(tmp_path)
    assert args.world_size == 1
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"one of 2 processes.*use_cpu=True"):
        MaCSTrainer(model=build("vit"), args=args, train_dataset=Images())
