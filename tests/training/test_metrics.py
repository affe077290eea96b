"""Evaluation with and without metrics of the user's, which `predict_rows` and calibration neither use nor lose."""

from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from tiny import Images, arguments, build, trainer
from torch import Tensor
from torch.utils.data import Dataset
from transformers import EvalPrediction

from macs_hf import MaCSTrainer
from macs_hf.training.trainer import all_finite, temporarily


def accuracy_of_classes(prediction: EvalPrediction) -> dict[str, float]:
    assert prediction.predictions.shape == prediction.label_ids.shape  # classes, not logits
    return {"hits": float((prediction.predictions == prediction.label_ids).mean())}


def classes(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.argmax(-1)


def with_metrics(folder: Path) -> MaCSTrainer:
    return MaCSTrainer(
        model=build("vit"),
        args=arguments(folder),
        train_dataset=Images(),
        eval_dataset=Images(40, seed=1),
        compute_metrics=accuracy_of_classes,
        preprocess_logits_for_metrics=classes,
    )


def test_metrics_of_the_user_survive_all_that_the_trainer_measures(tmp_path: Path) -> None:
    run, plain = with_metrics(tmp_path), trainer(tmp_path, build("vit"))
    test, validation = Images(40, seed=1), Images(128, seed=2)
    hits = run.evaluate()["eval_hits"]
    assert hits == pytest.approx(plain.evaluate(test)["eval_accuracy"])

    rows, at_two = run.predict_rows(test, temperatures=(1.0, 2.0))
    expected, expected_at_two = plain.predict_rows(test, temperatures=(1.0, 2.0))
    np.testing.assert_array_equal(rows.nll, expected.nll)
    np.testing.assert_array_equal(at_two.confidence, expected_at_two.confidence)
    assert not np.array_equal(rows.confidence, at_two.confidence)

    assert run.fit_temperature(validation).temperature == plain.fit_temperature(validation).temperature
    run.calibrate(validation)
    assert run.compute_metrics is accuracy_of_classes and run.preprocess_logits_for_metrics is classes
    assert run.evaluate()["eval_hits"] == hits  # a temperature does not change the classes


def test_persistent_workers_evaluate_the_dataset_that_is_given(tmp_path: Path) -> None:
    workers = {"dataloader_num_workers": 1, "dataloader_persistent_workers": True}
    validation, test = Images(8, seed=1), Images(16, seed=2)
    losses = []
    for options in (workers, {}):
        args = arguments(tmp_path, **options)
        run = MaCSTrainer(model=build("vit"), args=args, train_dataset=Images(), eval_dataset=validation)
        losses.append([run.evaluate(*given)["eval_loss"] for given in ((), (test,), ())])
    assert losses[0] == losses[1]


@pytest.mark.parametrize("measure", ["evaluate", "predict_rows", "fit_temperature"])
def test_metrics_are_restored_after_an_error_too(measure: str, tmp_path: Path) -> None:
    class Broken(Images):
        def __getitem__(self, index: int) -> dict[str, Tensor]:
            raise OSError("disk on fire")

    run = with_metrics(tmp_path)
    with pytest.raises(OSError, match="disk on fire"):
        getattr(run, measure)(Broken())
    assert run.compute_metrics is accuracy_of_classes and run.preprocess_logits_for_metrics is classes
    plain = trainer(tmp_path, build("vit"))
    with pytest.raises(OSError, match="disk on fire"):
        getattr(plain, measure)(Broken())
    assert plain.compute_metrics is None and plain.preprocess_logits_for_metrics is None


class Unlabelled(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"pixel_values": Images(8).images[index]}


@pytest.mark.parametrize("measure", ["predict_rows", "fit_temperature"])
def test_samples_without_labels(measure: str, tmp_path: Path) -> None:
    run = trainer(tmp_path, build("vit"))
    with pytest.raises(ValueError, match="Labelled samples are needed"):
        getattr(run, measure)(Unlabelled())


# ---- What they are built on ----


class Thing:
    colour, size = "red", 1


def test_attributes_are_other_ones_inside_and_the_old_ones_after() -> None:
    thing = Thing()
    with temporarily(thing, colour="blue", size=2):
        assert (thing.colour, thing.size) == ("blue", 2)
    assert (thing.colour, thing.size) == ("red", 1)
    with pytest.raises(KeyError), temporarily(thing, colour="blue"):
        raise KeyError
    assert thing.colour == "red"
    with pytest.raises(AttributeError), temporarily(thing, weight=3):
        pass


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_all_finite(value: float) -> None:
    accelerator, weights = Accelerator(cpu=True), [torch.ones(2, 3), torch.zeros(4)]
    assert all_finite(weights, accelerator) and all_finite((), accelerator)
    weights[1][2] = value
    assert not all_finite(weights, accelerator)
