"""What a trainer measures: beside metrics of the user's, in the precision that is saved, with report and card."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import Images, Unlabelled, arguments, build, trainer
from torch import Tensor
from transformers import AutoModelForImageClassification, EvalPrediction, ViTImageProcessor

from macs_hf import MaCSTrainer
from macs_hf.calibration import calibrate_logits
from macs_hf.report.report import load_run


def accuracy_of_classes(prediction: EvalPrediction) -> dict[str, float]:
    assert prediction.predictions.shape == prediction.label_ids.shape  # classes, not logits
    return {"hits": float((prediction.predictions == prediction.label_ids).mean())}


def classes(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.argmax(-1)


class Broken(Images):
    def __getitem__(self, index: int) -> dict[str, Tensor]:
        raise OSError("disk on fire")


def test_metrics_of_the_user_survive_all_that_the_trainer_measures(tmp_path: Path) -> None:
    test, validation = Images(40, seed=1), Images(128, seed=2)
    own = {"compute_metrics": accuracy_of_classes, "preprocess_logits_for_metrics": classes}
    run, plain = trainer(tmp_path, build("vit"), eval_dataset=test, **own), trainer(tmp_path, build("vit"))
    metrics, ours = run.evaluate(), plain.evaluate(test)
    hits = metrics["eval_hits"]
    assert hits == pytest.approx(ours["eval_accuracy"])
    for name in ("accuracy", "nll", "ece", "brier", "logit_margin"):  # added to those of the user
        assert metrics[f"eval_{name}"] == ours[f"eval_{name}"]

    np.testing.assert_array_equal(run.predict_rows(test).nll, plain.predict_rows(test).nll)
    with pytest.raises(ValueError, match="labels"):
        run.predict_rows(Unlabelled(8))

    with pytest.raises(ValueError, match="fitted on the training set"):
        run.calibrate(run.train_dataset)
    run.calibrate(validation)
    assert run.evaluate()["eval_hits"] == hits  # a temperature does not change the classes
    for measure in (run.evaluate, run.predict_rows):
        with pytest.raises(OSError, match="disk on fire"):
            measure(Broken())
    assert run.compute_metrics is accuracy_of_classes and run.preprocess_logits_for_metrics is classes


@pytest.mark.parametrize("calibrated", [True, False])
def test_one_call_leaves_a_measured_model_with_report_card_and_pictures(calibrated: bool, tmp_path: Path) -> None:
    processor = ViTImageProcessor(size={"height": 32, "width": 32})
    run = MaCSTrainer(build("vit"), arguments(tmp_path), train_dataset=Images(), processing_class=processor)
    test, held_out = Images(60, seed=1), Images(450, seed=2) if calibrated else None
    before = run.predict_logits(test)[0]
    options = {"corruptions": "auto", "force_temperature": True} if calibrated else {"corruptions": None}
    report = run.evaluate_and_report(test, held_out, corruption_samples=2, dataset="pets", **options)
    stored = load_run(tmp_path)
    assert stored.report == report and len(stored.rows) == report.n == 60 and report.dataset == "pets"
    assert (report.corruptions is not None) == calibrated
    assert report.training_arguments["method"] == "macs"
    assert "pets" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "report.html").is_file() and list(tmp_path.glob("*.png"))
    # The saved model is the one that the report is about.
    model = AutoModelForImageClassification.from_pretrained(tmp_path).eval()
    temperature = getattr(model.config, "calibration_temperature", 1.0)
    assert (abs(temperature - 1) > 0.01) == calibrated
    assert not calibrated or (temperature == report.temperature.value and model.config.prediction_set_thresholds)
    with torch.no_grad():
        after = model(test.images).logits.numpy()
    np.testing.assert_allclose(after, before / temperature, rtol=1e-4, atol=1e-5)


def test_persistent_workers_evaluate_the_dataset_that_is_given(tmp_path: Path) -> None:
    workers = {"dataloader_num_workers": 1, "dataloader_persistent_workers": True}
    validation, test = Images(8, seed=1), Images(16, seed=2)
    losses = []
    for options in (workers, {}):
        args = arguments(tmp_path, **options)
        run = MaCSTrainer(model=build("vit"), args=args, train_dataset=Images(), eval_dataset=validation)
        losses.append([run.evaluate(*given)["eval_loss"] for given in ((), (test,), ())])
    assert losses[0] == losses[1]


@pytest.mark.parametrize("name", ["vit", "resnet"])
def test_a_run_in_16_bits_is_measured_and_calibrated_as_it_is_loaded(name: str, tmp_path: Path) -> None:
    def loaded(folder: str) -> torch.Tensor:
        run.save_model(str(tmp_path / folder))
        with torch.no_grad():
            return AutoModelForImageClassification.from_pretrained(tmp_path / folder).eval()(data.images).logits

    data = Images(400, seed=2)
    run = trainer(tmp_path / "run", build(name), Images(64), bf16=True)
    # Before training the model is prepared for evaluation only.
    np.testing.assert_allclose(run.predict_logits(data)[0], loaded("start"), atol=1e-5)
    run.train()
    before = loaded("before")
    exact, _ = run.predict_logits(data)
    np.testing.assert_allclose(exact, before, atol=1e-5)
    assert 1e-5 < np.abs(exact - run.predict(data).predictions).max() < 0.1  # Trainer's own still runs in 16 bits
    temperature = run.calibrate(data).value
    assert temperature == pytest.approx(calibrate_logits(before, data.labels)[0].value, rel=1e-4)
    torch.testing.assert_close(loaded("after"), before / temperature, atol=1e-5, rtol=1e-5)
