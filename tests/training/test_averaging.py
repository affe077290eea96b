"""Averaged weights: the numbers of the average, and that they are what is evaluated, saved and resumed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import Augmented, Images, StopAt, build, logged, same_weights, trainer
from torch import Tensor
from transformers import AutoModelForImageClassification, TrainerCallback

from macs_hf import MaCSTrainer
from macs_hf.training.averaging import restore_raw_weights


class Record(TrainerCallback):
    """Keeps a copy of the weights after each step, and of those that other callbacks see at the end."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Tensor]] = []
        self.end: dict[str, Tensor] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.steps.append({name: tensor.clone() for name, tensor in model.state_dict().items()})

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.end = {name: tensor.clone() for name, tensor in model.state_dict().items()}


def averaged(steps: list[dict[str, Tensor]], decay: float) -> dict[str, Tensor]:
    """The definition, in double precision: the decay after step t is min(decay, (t - 1) / (t + 9))."""
    average = {name: tensor.double() for name, tensor in steps[0].items()}
    for t, weights in enumerate(steps, start=1):
        d = min(decay, (t - 1) / (t + 9))
        average = {name: d * average[name] + (1 - d) * weights[name].double() for name in weights}
    return average | {name: tensor for name, tensor in steps[-1].items() if not tensor.is_floating_point()}


def assert_average(model: torch.nn.Module, steps: list[dict[str, Tensor]], decay: float) -> None:
    expected = averaged(steps, decay)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor.to(expected[name].dtype), expected[name], rtol=1e-5, atol=1e-7)


def start(folder: Path, *callbacks: TrainerCallback, name: str = "resnet", **overrides: Any) -> MaCSTrainer:
    """Eight steps of three per epoch, evaluating and saving as it goes."""
    steps = {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    return trainer(
        folder,
        build(name, **{"drop_path": 0.3} if name == "swin" else {}),
        Augmented(),
        eval_dataset=Images(8, seed=1),
        callbacks=list(callbacks),
        **{"max_steps": 8, "ema_decay": 0.7} | steps | overrides,
    )


@pytest.mark.parametrize("decay", [0.2, 0.999], ids=["decay", "warm-up"])
def test_the_average_is_the_defined_one_and_training_does_not_see_it(decay: float, tmp_path: Path) -> None:
    record, plain = Record(), Record()
    run = start(tmp_path / "a", record, ema_decay=decay)
    run.train()
    start(tmp_path / "b", plain, ema_decay=None).train()
    names = {name.rpartition(".")[2] for name in record.end}
    assert names >= {"running_mean", "running_var", "num_batches_tracked"}
    assert_average(run.model, record.steps, decay)
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(tensor, record.end[name])
        assert torch.equal(tensor, record.steps[-1][name]) == (not tensor.is_floating_point()), name
        assert all(torch.equal(*(step[name] for step in pair)) for pair in zip(plain.steps, record.steps, strict=True))
        assert torch.equal(plain.end[name], plain.steps[-1][name])


@pytest.mark.parametrize("name", ["swin", "resnet"])
def test_stopped_and_resumed_equals_never_stopped_in_both_weights(name: str, tmp_path: Path) -> None:
    whole = start(tmp_path / "whole", name=name)
    whole.train()
    start(tmp_path / "parts", StopAt(4), name=name).train()
    resumed = start(tmp_path / "parts", name=name)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 8
    assert same_weights(whole.model, resumed.model)
    assert logged(whole, "eval_loss") == logged(resumed, "eval_loss")
    raw = build(name), build(name)
    for model, run in zip(raw, ("whole", "parts"), strict=True):
        restore_raw_weights(model, tmp_path / run / "checkpoint-8")
    assert same_weights(*raw) and not same_weights(raw[0], whole.model)


def test_evaluated_saved_calibrated_and_left_in_the_model_is_the_average(tmp_path: Path) -> None:
    record = Record()
    run = start(tmp_path, record)
    run.train()
    images, labels = Images(8, seed=1).images, Images(8, seed=1).labels
    for step, reported in enumerate(logged(run, "eval_loss"), start=1):
        model = AutoModelForImageClassification.from_pretrained(tmp_path / f"checkpoint-{step}").eval()
        assert_average(model, record.steps[:step], 0.7)
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(model(images).logits, labels)
        assert reported == pytest.approx(loss.item(), abs=1e-6)
    run.save_model(str(tmp_path / "final"))
    assert same_weights(AutoModelForImageClassification.from_pretrained(tmp_path / "final"), run.model)
    assert run.evaluate()["eval_loss"] == pytest.approx(logged(run, "eval_loss")[-2], abs=1e-6)
    assert not (tmp_path / "final" / "raw_weights.pt").exists()
    before = run.model.eval()(images).logits.detach()
    fit = run.calibrate(Images(128, seed=2))
    torch.testing.assert_close(run.model.eval()(images).logits, before / fit.value)


def test_the_best_model_is_the_average_of_its_own_step(tmp_path: Path) -> None:
    # The highest loss counts as the best here, so that the best is not the last.
    best = {"load_best_model_at_end": True, "metric_for_best_model": "loss", "greater_is_better": True}
    run = start(tmp_path, **best)
    run.train()
    losses = logged(run, "eval_loss")
    at = losses.index(max(losses)) + 1
    assert at < 8
    assert same_weights(AutoModelForImageClassification.from_pretrained(tmp_path / f"checkpoint-{at}"), run.model)


class Interrupt(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 3:
            raise KeyboardInterrupt


def test_an_interrupted_run_leaves_the_average_too_and_no_callback(tmp_path: Path) -> None:
    record = Record()
    run = trainer(tmp_path, build("vit"), max_steps=6, ema_decay=0.7, callbacks=[record, Interrupt()])
    before = list(run.callback_handler.callbacks)
    with pytest.raises(KeyboardInterrupt):
        run.train()
    assert run.callback_handler.callbacks == before
    assert_average(run.model, record.steps, 0.7)


def test_a_search_may_choose_the_decay(tmp_path: Path) -> None:
    record = Record()
    run = trainer(tmp_path, build("vit"), callbacks=[record])
    run.args.ema_decay = 0.5
    run.train()
    assert_average(run.model, record.steps, 0.5)


def test_adapters_and_half_precision_weights_are_not_averaged(tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(build("vit"), LoraConfig(r=2, target_modules="all-linear"))
    for model in (adapted, build("vit").to(torch.bfloat16)):
        with pytest.raises(ValueError, match=r"ema_decay=0.9 .*float32.*adapters"):
            trainer(tmp_path, model, ema_decay=0.9)
