"""`CalibrationCallback`: what it logs is what our metrics say, and what a user's own metrics get is unchanged."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny import Images, build, trainer
from torch import Tensor
from transformers import EvalPrediction, Trainer, TrainingArguments
from transformers.integrations import TensorBoardCallback, TrackioCallback, WandbCallback, rewrite_logs

from macs_hf import CalibrationCallback, SampleRows
from macs_hf.metrics import summarize


TEST = Images(22, seed=1)


def plain_trainer(folder: Path, compute_metrics: Any = None, preprocess: Any = None, **overrides: Any) -> Trainer:
    settings = {"max_steps": 2, "logging_steps": 1, "report_to": "none", "disable_tqdm": True, "use_cpu": True}
    settings |= {"per_device_eval_batch_size": 8, "save_strategy": "no", "dataloader_pin_memory": False}
    return Trainer(
        model=build("vit"),
        args=TrainingArguments(str(folder), **settings | overrides),
        train_dataset=Images(),
        eval_dataset=TEST,
        compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=preprocess,
    )


def expected(run: Trainer, data: Images = TEST) -> dict[str, float]:
    with torch.no_grad():
        logits = run.model.eval()(data.images).logits
    return summarize(SampleRows.from_logits(logits, data.labels))


def of_evaluation(metrics: dict[str, float], prefix: str = "eval") -> dict[str, float]:
    names = ("accuracy", "nll", "ece", "brier", "logit_margin")
    return {name: metrics[f"{prefix}_{name}"] for name in names}


class Recorded:
    """A user's metrics: keeps what it was called with."""

    def __init__(self, **result: float) -> None:
        self.result, self.predictions, self.options = result, [], []

    def __call__(self, prediction: EvalPrediction, compute_result: bool | None = None) -> dict[str, float]:
        found = prediction.predictions  # a list of batches, with eval_do_concat_batches=False
        self.predictions.append([*map(np.asarray, found)] if isinstance(found, list) else np.asarray(found))
        self.options.append(compute_result)
        return dict(self.result)


def test_values_are_those_of_our_metrics(tmp_path: Path) -> None:
    run = plain_trainer(tmp_path, eval_strategy="steps", eval_steps=1)
    run.add_callback(CalibrationCallback(run))
    run.train()
    metrics = run.evaluate()
    assert of_evaluation(metrics) == pytest.approx(expected(run), rel=1e-5)
    assert metrics["eval_nll"] == pytest.approx(metrics["eval_loss"], rel=1e-4)
    logged = [entry for entry in run.state.log_history if "eval_ece" in entry]
    assert [entry["step"] for entry in logged] == [1, 2, 2]
    several = run.evaluate({"a": TEST, "b": Images(9, seed=4)})
    assert of_evaluation(several, "eval_b") == pytest.approx(expected(run, Images(9, seed=4)), rel=1e-5)


@pytest.mark.parametrize(
    ("options", "preprocess"),
    [
        ({}, None),
        ({}, lambda logits, labels: logits.argmax(-1)),
        ({"eval_do_concat_batches": False}, None),
        ({"batch_eval_metrics": True}, lambda logits, labels: logits.argmax(-1)),
        ({"eval_accumulation_steps": 1}, None),
    ],
)
def test_the_users_metrics_get_what_they_always_got(tmp_path: Path, options: dict[str, Any], preprocess: Any) -> None:
    alone, beside = Recorded(hits=0.5, accuracy=0.25), Recorded(hits=0.5, accuracy=0.25)
    without, run = (plain_trainer(tmp_path, own, preprocess, **options) for own in (alone, beside))
    run.add_callback(CalibrationCallback(run))
    before, metrics = without.evaluate(), run.evaluate()
    assert beside.options == alone.options
    np.testing.assert_equal(beside.predictions, alone.predictions)
    assert metrics["eval_hits"] == 0.5 and metrics["eval_accuracy"] == 0.25  # the user's, where both have it
    assert before.keys() <= metrics.keys()
    truth = expected(run) | {"accuracy": 0.25}
    assert of_evaluation(metrics) == pytest.approx(truth, rel=1e-5)
    # Predictions are as they were, too.
    np.testing.assert_equal(run.predict(TEST).predictions, without.predict(TEST).predictions)


class Labelled(Images):
    """Labels under another name."""

    def __getitem__(self, index: int | slice) -> dict[str, Any]:
        item = super().__getitem__(index)
        return {"pixel_values": item["pixel_values"], "target": item["labels"]}


def test_other_names_of_labels_and_further_outputs(tmp_path: Path) -> None:
    run = plain_trainer(tmp_path, label_names=["target"], remove_unused_columns=False)

    def loss(model: torch.nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, **kwargs: Any) -> Any:
        outputs = model(inputs["pixel_values"], output_hidden_states=True)
        value = torch.nn.functional.cross_entropy(outputs.logits, inputs["target"])
        return (value, {"logits": outputs.logits, "hidden": outputs.hidden_states[-1]}) if return_outputs else value

    run.compute_loss = loss
    run.add_callback(CalibrationCallback(run))
    assert of_evaluation(run.evaluate(Labelled(22, seed=1))) == pytest.approx(expected(run), rel=1e-5)


class Broken(Images):
    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 15:
            raise OSError("disk on fire")
        return super().__getitem__(index)


def test_an_evaluation_that_failed_leaves_nothing_behind(tmp_path: Path) -> None:
    run = plain_trainer(tmp_path)
    run.add_callback(CalibrationCallback(run))
    with pytest.raises(OSError, match="on fire"):
        run.evaluate(Broken(22, seed=3))
    assert of_evaluation(run.evaluate()) == pytest.approx(expected(run), rel=1e-5)


def test_what_it_cannot_work_with_is_refused(tmp_path: Path) -> None:
    for named, value in (("label_names", ["labels", "target"]), ("prediction_loss_only", True)):
        with pytest.raises(ValueError, match=named):
            CalibrationCallback(plain_trainer(tmp_path, **{named: value}))
    run = trainer(tmp_path, build("vit"))
    run.add_callback(CalibrationCallback(run))
    with pytest.raises(ValueError, match="already"):
        CalibrationCallback(run)


def test_tensorboard_has_the_values_and_the_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "log"))
    run = plain_trainer(tmp_path, report_to="tensorboard", eval_strategy="steps", eval_steps=1)
    run.add_callback(CalibrationCallback(run))
    run.train()
    events = EventAccumulator(str(tmp_path / "log"))
    events.Reload()
    assert [event.step for event in events.Images("eval/reliability")] == [1, 2]
    picture = events.Images("eval/reliability")[1]
    assert picture.width > 400 and picture.encoded_image_string.startswith(b"\x89PNG")
    assert events.Scalars("eval/ece")[1].value == pytest.approx(expected(run)["ece"], rel=1e-4)


@pytest.mark.parametrize(("tracker", "callback"), [("trackio", TrackioCallback), ("wandb", WandbCallback)])
def test_other_trackers_get_the_picture(
    tracker: str, callback: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their public functions `log` and `Image`, within the run that their own callback began."""
    logged: list[dict[str, Any]] = []
    module = ModuleType(tracker)
    module.__spec__ = ModuleSpec(tracker, None)
    module.log, module.Image = logged.append, lambda image: ("picture", image)
    monkeypatch.setitem(sys.modules, tracker, module)
    for event in ("on_log", "on_train_begin", "on_train_end"):
        monkeypatch.setattr(callback, event, lambda *args, **kwargs: None)
    monkeypatch.setattr(callback, "__init__", lambda self: None)
    run = plain_trainer(tmp_path)
    run.add_callback(callback())
    run.add_callback(CalibrationCallback(run))
    run.evaluate(metric_key_prefix="eval_night")
    ((entry),) = logged
    assert entry.keys() == {"eval/night_reliability", "train/global_step"} and entry["train/global_step"] == 0
    kind, image = entry["eval/night_reliability"]
    assert kind == "picture" and isinstance(image, Image.Image) and image.mode == "RGB"


def test_parts_of_transformers_that_pictures_rely_on(tmp_path: Path) -> None:
    """Canaries: attributes and functions that are not documented."""
    assert TensorBoardCallback(tb_writer="writer").tb_writer == "writer"
    assert rewrite_logs({"eval_ece": 1}) == {"eval/ece": 1}
    run = plain_trainer(tmp_path)
    assert run.label_names == ["labels"] and isinstance(run.callback_handler.callbacks, list)
    assert "eval_night_runtime" in run.evaluate(metric_key_prefix="eval_night")
