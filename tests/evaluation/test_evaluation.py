"""From a trained model to its report: metrics by default, temperature fitted and folded, rows and pictures written."""

from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import load_dataset
from PIL import Image
from tiny import Images, Unlabelled, arguments, build, logits_of, trainer
from transformers import ViTImageProcessor

from macs_hf import MaCSTrainer, PixelStats
from macs_hf.data.images import ImageDataset
from macs_hf.data.transforms import EvalTransform
from macs_hf.evaluation import evaluate_checkpoint, write_report
from macs_hf.metrics import brier_score, expected_calibration_error, negative_log_likelihood, summarize
from macs_hf.report.report import load_run
from macs_hf.report.rows import CORRUPTIONS
from macs_hf.training.arguments import recorded_arguments


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """Weights of a model that is overconfident on purpose: logits five times as large as they were learned."""
    run = trainer(tmp_path_factory.mktemp("learned"), build("vit"), Images(64), max_steps=8)
    run.train()
    with torch.no_grad():
        run.model.classifier.weight.mul_(5)
        run.model.classifier.bias.mul_(5)
    return {name: weight.clone() for name, weight in run.model.state_dict().items()}


@pytest.fixture
def trained(learned: dict[str, torch.Tensor], tmp_path: Path) -> MaCSTrainer:
    model = build("vit")
    model.load_state_dict(learned)
    options = {"train_dataset": Images(64), "pixel_stats": PixelStats((0.5,), (0.5,))}
    return MaCSTrainer(model=model, args=arguments(tmp_path, max_steps=8), **options)


def test_default_metrics_are_those_of_the_functions(trained: MaCSTrainer) -> None:
    data = Images(50, seed=1)
    logits, labels = logits_of(trained, data), data.labels.numpy()
    found = trained.evaluate(data)
    assert found["eval_accuracy"] == pytest.approx((logits.argmax(1) == labels).mean())
    assert found["eval_nll"] == pytest.approx(negative_log_likelihood(logits, labels), abs=1e-6)
    assert found["eval_nll"] == pytest.approx(found["eval_loss"], abs=1e-6)
    assert found["eval_ece"] == pytest.approx(expected_calibration_error(logits, labels), abs=1e-6)
    assert found["eval_brier"] == pytest.approx(brier_score(logits, labels), abs=1e-6)
    assert trained.predict(data).predictions == pytest.approx(logits, abs=1e-6)


def test_prediction_without_labels_gives_logits(trained: MaCSTrainer) -> None:
    data = Unlabelled(10)
    assert trained.predict(data).predictions == pytest.approx(logits_of(trained, data), abs=1e-6)
    assert "eval_ece" not in trained.evaluate(data)


def test_report_has_before_and_after_and_the_model_stays_as_it_was(trained: MaCSTrainer, tmp_path: Path) -> None:
    validation, test = Images(200, seed=2), Images(150, seed=3)
    logits = logits_of(trained, test)
    options = {"corruptions": "cifar", "corruption_samples": 20, "margin_samples": 10}
    report, rows = evaluate_checkpoint(trained, test, validation, **options)
    assert logits_of(trained, test) == pytest.approx(logits)
    labels = test.labels.numpy()
    assert report.n == 150
    scaled = logits / report.temperature.value
    for measured, values in ((report.before, logits), (report.after, scaled)):
        assert measured.metrics["nll"].value == pytest.approx(negative_log_likelihood(values, labels), abs=1e-5)
        assert measured.metrics["ece"].value == pytest.approx(expected_calibration_error(values, labels), abs=1e-5)
    assert (report.corruptions.n, report.corruptions.size) == (20, (32, 32))
    assert (report.margins.num_samples, report.margins.space) == (10, "normalized")

    written = write_report(report, rows, tmp_path / "trial")
    names = {"evaluation.json", "samples.parquet", "reliability.png", "risk_coverage.png", "corruptions.png"}
    names |= {"severity.png", "classes.png", "confusion.png", "report.html"}
    assert {path.name for path in written} == names == {path.name for path in (tmp_path / "trial").iterdir()}
    run = load_run(tmp_path / "trial")
    assert run.report == report
    for found, measured in ((run.rows, report.after), (run.rows_before, report.before)):
        values = {name: interval.value for name, interval in measured.metrics.items()}
        assert summarize(found) == pytest.approx(values, abs=1e-5)
    corrupted = run.report.corruptions.rows
    assert len(corrupted) == 20
    assert corrupted.hits.mean() / 5 == pytest.approx(report.corruptions.mean(CORRUPTIONS))


def test_margins_are_those_of_all_classes(trained: MaCSTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a test set that is sorted, as folders are, the first images are of one class."""
    test, seen, batches = Images(120, seed=3), [], trained.data_collator
    order = test.labels.argsort(stable=True)
    test.images, test.labels = test.images[order], test.labels[order]
    monkeypatch.setattr(trained, "data_collator", lambda rows: seen.extend(rows) or batches(rows))
    evaluate_checkpoint(trained, test, margin_samples=20)
    assert len({int(row["labels"]) for row in seen[-20:]}) > 1


def test_recorded_arguments_are_the_main_ones_and_those_that_differ(tmp_path: Path) -> None:
    args = arguments(tmp_path, lambda_margin=0.3, lr_scheduler_type="cosine", lr_scheduler_kwargs={"num_cycles": 1})
    recorded = recorded_arguments(args)
    assert (recorded["lambda_margin"], recorded["lr_scheduler_type"]) == (0.3, "cosine")
    assert recorded["lr_scheduler_kwargs"] == "{'num_cycles': 1}"  # a report has plain values and lists of them
    assert (recorded["seed"], recorded["num_train_epochs"]) == (args.seed, 3.0)  # of the main ones
    assert not {"output_dir", "margin", "hub_token"} & set(recorded) and str(tmp_path) not in str(recorded)


def test_a_report_needs_no_facts_and_refuses_others(trained: MaCSTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    report, _ = evaluate_checkpoint(trained, Images(20, seed=3))
    assert (report.model, report.dataset, report.split) == ("ViTForImageClassification", "Images", "test")
    monkeypatch.setattr(trained, "predict", None)  # nothing is measured before the mistake is found
    for name in ("datset", "n"):
        with pytest.raises(TypeError, match=f"evaluate_checkpoint has no argument '{name}'; fields to state are"):
            evaluate_checkpoint(trained, Images(20, seed=3), **{name: "x"})


def test_facts_and_file_names_of_a_folder_of_images(trained: MaCSTrainer, tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / "pets" / "test" / label).mkdir(parents=True)
        for number in range(3):
            pixels = np.random.default_rng(number).integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pets" / "test" / label / f"{number}.png")
    images = load_dataset(str(tmp_path / "pets"), cache_dir=str(tmp_path / "cache"))["test"]
    transform = EvalTransform(ViTImageProcessor(size={"height": 32, "width": 32}))
    test = ImageDataset(images.select([4, 0, 1]), "image", "label", transform, "held out")
    trained.model.config.name_or_path = str(tmp_path / "best-model")
    report, rows = evaluate_checkpoint(trained, test)
    assert (report.model, report.dataset, report.split) == ("best-model", "pets", "held out")
    assert rows[0].name.tolist() == ["dog/1.png", "cat/0.png", "cat/1.png"]
    assert rows[0].label.tolist() == [1, 0, 0]
    assert str(tmp_path) not in report.to_json()


def test_pictures_of_an_earlier_report_are_removed(trained: MaCSTrainer, tmp_path: Path) -> None:
    report, rows = evaluate_checkpoint(trained, Images(20, seed=3))
    (tmp_path / "config.json").write_text('{"precious": 1}')
    for name in ("corruptions.png", "severity.png", "groups.png", "mistakes.png", "report.html"):
        (tmp_path / name).touch()
    written = write_report(report, rows, tmp_path)
    pictures = ["reliability.png", "risk_coverage.png", "classes.png", "confusion.png"]
    assert [path.name for path in written] == ["evaluation.json", "samples.parquet", "report.html", *pictures]
    assert {path for path in tmp_path.iterdir() if path.is_file()} == {*written, tmp_path / "config.json"}
    assert (tmp_path / "config.json").read_text() == '{"precious": 1}'
    assert (tmp_path / "report.html").stat().st_size > 0


def test_test_images_are_not_calibrated_on(trained: MaCSTrainer) -> None:
    test = Images(20, seed=3)
    with pytest.raises(ValueError, match="are the test images"):
        evaluate_checkpoint(trained, test, test)
