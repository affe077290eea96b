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

    def __init__(self, label: int) -> None:
        super().__init__()
        self.labels[0] = label


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
        (Relabelled(NUM_LABELS), {}, r"Label 4 of row \d+"),
        (column([0, 1, 2, 3, 0, 1, 2, 9]), {}, r"Label 9 of row 7 in column 'label' of the training set"),
        (column(["ant", "bee"] * 4), {}, r"'label' of the training set holds 'ant'.*cast_column"),
        (column([0, 1, None, 3] * 2), {}, r"'label' of the training set holds None.* 2 of 8"),
        (Only(), {}, r"`labels`, but has \['pixel_values'\]"),
        (Only(labels=SOFT), {}, r"lambda_margin=0"),
        (Only(labels=SEVERAL), {"lambda_margin": 0.0}, r"multi-label.*one class number per image"),
        (Images(), METHODS["augmix"], r"lambda_jsd=12.0 .*augmix_pixel_values"),
    ],
)
def test_what_cannot_be_trained_on_is_named(data: Any, settings: dict[str, Any], named: str, tmp_path: Path) -> None:
    run = trainer(tmp_path, build("vit"), data, **settings)
    with pytest.raises(ValueError, match=named):
        run.train()
    assert run.state.global_step == 0 or isinstance(data, Relabelled)  # the only one that is not seen at once


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


def test_models_that_are_no_single_label_classifiers(tmp_path: Path) -> None:
    for settings in ({"num_labels": 1}, {"problem_type": "multi_label_classification"}):
        config = ViTConfig(image_size=32, patch_size=8, hidden_size=16, num_hidden_layers=1, **settings)
        with pytest.raises(ValueError, match=str(*settings.values())):
            trainer(tmp_path, ViTForImageClassification(config))


def test_processes_that_train_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several GPUs of one process, and processes that do not know of each other."""
    args = arguments(tmp_path)
    assert args.n_gpu == 0 and args.world_size == 1  # sets up the devices, so that the next line is not overwritten
    args._n_gpu = 4
    with pytest.raises(ValueError, match=r"4 GPUs are visible to one process.*accelerate launch"):
        MaCSTrainer(model=build("vit"), args=args, train_dataset=Images())
    MaCSTrainer(model=build("vit"), args=args)  # what is only measured has no views
    args._n_gpu = 1
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"one of 2 processes.*use_cpu=True"):
        MaCSTrainer(model=build("vit"), args=args, train_dataset=Images())


class Poison(TrainerCallback):
    """Makes a weight nan after a step, as a diverging optimiser would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step == self.step:
            with torch.no_grad():
                model.classifier.weight.fill_(float("nan"))


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        # The loss of step 5 was fine: that of the next step, the evaluation and the checkpoint are not.
        ({"logging_steps": 4}, r"between steps 4 and 6.*checkpoint-3"),
        ({"logging_steps": 12, "save_steps": 5}, r"between steps 0 and 5.*none was saved"),
        ({"logging_steps": 12, "eval_strategy": "steps", "eval_steps": 5}, r"between steps 3 and 5.*checkpoint-3"),
    ],
    ids=["logging", "saving", "evaluating"],
)
def test_a_diverged_run_names_its_last_good_checkpoint(settings: dict[str, Any], found: str, tmp_path: Path) -> None:
    usual = {"max_steps": 12, "save_strategy": "steps", "save_steps": 3, "eval_dataset": Images(8)}
    run = trainer(tmp_path, build("vit"), **usual | settings, callbacks=[Poison(5)])
    with pytest.raises(FloatingPointError, match=found):
        run.train()
    assert len(list(tmp_path.glob("checkpoint-*"))) == ("none" not in found)
