"""Beyond the means: size of the images, classes, groups, unknown images, copies and the gallery of mistakes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Value
from PIL import Image
from scipy.special import softmax
from tiny import NUM_LABELS, Images, arguments, build
from transformers import ViTImageProcessor

from macs_hf import MaCSTrainer
from macs_hf.data.images import ImageDataset
from macs_hf.data.preparing import OodImages
from macs_hf.data.transforms import EvalTransform
from macs_hf.evaluation import evaluate_checkpoint, write_gallery, write_report
from macs_hf.evaluation.evaluate import MeasuredModel
from macs_hf.metrics import confusion_matrix, detection, group_measures, wilson
from macs_hf.rendering.pictures import confident_mistakes
from macs_hf.report.report import load_run
from macs_hf.report.rows import SampleRows


NAMES = ("ant", "bee", "cat", "dog")
PROCESSOR = ViTImageProcessor(size={"height": 32, "width": 32}, image_mean=[0.5] * 3, image_std=[0.5] * 3)


def pictures(count: int, seed: int, brightness: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, NUM_LABELS, count)
    pixels = rng.integers(0, 120, (count, 20, 20, 3)) + 30 * labels[:, None, None, None] + brightness
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=list(NAMES)), "camera": Value("string")})
    rows = {
        "image": [Image.fromarray(np.uint8(np.minimum(image, 255))) for image in pixels],
        "label": labels.tolist(),
        "camera": [f"camera {place % 3}" for place in range(count)],
    }
    return Dataset.from_dict(rows, features=features)


def image_dataset(rows: Dataset, **options: Any) -> ImageDataset:
    data = ImageDataset(rows, "image", options.pop("label", "label"), EvalTransform(PROCESSOR), "test", **options)
    data.check_images()
    return data


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> MaCSTrainer:
    model = build("resnet")
    model.config.id2label = dict(enumerate(NAMES))
    run = MaCSTrainer(
        model=model,
        args=arguments(tmp_path_factory.mktemp("run"), max_steps=12),
        train_dataset=image_dataset(pictures(64, 0)),
        processing_class=PROCESSOR,
    )
    run.train()
    return run


@pytest.fixture(scope="module")
def test() -> ImageDataset:
    return image_dataset(pictures(150, 1), group_column="camera")


def logits_of(run: MaCSTrainer, data: Any) -> np.ndarray:
    images = torch.stack([data[place]["pixel_values"] for place in range(len(data))])
    with torch.no_grad():
        return run.model.eval()(images).logits.double().numpy()


def test_the_report_says_at_which_size_it_measured(trained: MaCSTrainer) -> None:
    """Someone else's transform, at another size than the processor makes."""
    report, _ = evaluate_checkpoint(trained, Images(20, image_size=48), margin_samples=4)
    assert report.image_size == (48, 48)
    assert "(n = 20, 48 x 48 pixels)" in str(report)


def test_classes_and_groups_are_those_of_the_rows(trained: MaCSTrainer, test: ImageDataset, tmp_path: Path) -> None:
    report, rows = evaluate_checkpoint(trained, test, image_dataset(pictures(120, 2)), margin_samples=4)
    published = rows[-1]
    assert report.image_size == (32, 32)
    assert report.classes == group_measures(published, names=NAMES)
    assert report.groups == group_measures(published, np.array(test.groups), column="camera")
    assert [group.n for group in report.groups.groups] == [50] * 3
    assert report.confusion == confusion_matrix(published, NUM_LABELS, NAMES)

    written = write_report(report, rows, tmp_path)
    assert {"classes.png", "confusion.png", "groups.png"} <= {path.name for path in written}
    run = load_run(tmp_path)
    assert run.report == report
    assert run.rows.group.tolist() == test.groups.tolist()


def test_more_classes_than_a_table_holds(trained: MaCSTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("macs_hf.evaluation.evaluate.MAX_GROUPS", 3)
    report, _ = evaluate_checkpoint(trained, Images(20), margin_samples=4)
    assert (report.classes, report.confusion, report.groups) == (None, None, None)


def test_copies_of_training_images_are_in_the_report(trained: MaCSTrainer) -> None:
    leaked = datasets.concatenate_datasets([pictures(30, 1), pictures(64, 0).select(range(7))])
    report, _ = evaluate_checkpoint(trained, image_dataset(leaked), margin_samples=4)
    [pair] = report.leakage.copies
    assert (pair.split, pair.other, pair.count) == ("test", "train", 7)
    assert evaluate_checkpoint(trained, Images(20), margin_samples=4)[0].leakage is None


# ---- A model at chance level ----


class ForOneSize(torch.nn.Module):
    """Right at one size of its input; at any other always the same, but for bright images; fails below 40 pixels."""

    def __init__(self, size: int, bright: float) -> None:
        super().__init__()
        self.size, self.bright, self.head = size, bright, torch.nn.Linear(NUM_LABELS, NUM_LABELS, bias=False)
        torch.nn.init.eye_(self.head.weight)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if images.shape[-1] < 40:
            raise RuntimeError("nothing is left of the image")
        brightness = images.mean(dim=(1, 2, 3))[:, None]
        if images.shape[-1] != self.size:
            brightness = brightness * (brightness > self.bright)
        levels = torch.linspace(brightness.min(), brightness.max(), NUM_LABELS)
        return self.head(-100 * (brightness - levels).abs())


@pytest.mark.parametrize(
    ("trained_at", "bright", "above_chance", "found"),
    [(48, 1, False, 48), (48, 0.45, True, 48), (100, 1, False, None), (128, 1, True, None)],
)
def test_the_size_of_training_is_found(trained_at: int, bright: float, above_chance: bool, found: int | None) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(120) % NUM_LABELS
    images = [Image.new("RGB", (32, 32), (60 * label + int(rng.integers(9)),) * 3) for label in labels]
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=list(NAMES))})
    rows = Dataset.from_dict({"image": images, "label": labels}, features=features)
    processor = ViTImageProcessor(size={"height": 128, "width": 128})
    test = ImageDataset(rows, "image", "label", EvalTransform(processor), "test")
    report, _ = evaluate_checkpoint(MeasuredModel(ForOneSize(trained_at, bright), processor), test, margin_samples=4)
    assert report.above_chance == above_chance
    assert (f"--image_size {found}" in str(report)) == (found is not None)
    assert (None if report.better_size is None else report.better_size.size) == found


# ---- Unknown images ----


def unknown(count: int = 90) -> OodImages:
    images = image_dataset(pictures(count, 5, brightness=90).remove_columns("label"), label=None)
    return OodImages(images, "user/bright", "test", 400, ("cat",))


def test_scores_of_unknown_images_are_those_of_their_logits(trained: MaCSTrainer, test: ImageDataset) -> None:
    new, validation = unknown(), image_dataset(pictures(420, 2))
    report, rows = evaluate_checkpoint(trained, test, validation, ood=new, margin_samples=4)
    found, temperature = report.ood, report.temperature.value
    assert (found.dataset, found.split, found.n, found.total) == ("user/bright", "test", 90, 400)
    assert (found.left_out, found.copies) == (("cat",), 0)
    for part, scale in ((found.before, 1.0), (found.after, temperature)):
        known, other = (logits_of(trained, data) / scale for data in (test, new.images))
        expected = {
            "max_probability": [softmax(side, axis=1).max(axis=1) for side in (known, other)],
            "max_logit": [side.max(axis=1) for side in (known, other)],
            "energy": [np.log(np.exp(side).sum(axis=1)) for side in (known, other)],
        }
        assert [measured.score for measured in part] == list(expected)
        for measured in part:
            wanted = detection(*expected[measured.score], n_resamples=2)
            assert measured.auroc.value == pytest.approx(wanted.auroc.value, abs=2e-4)
            assert measured.fpr95.value == pytest.approx(wanted.fpr95.value, abs=1.5 / 90)
    confidence = softmax(logits_of(trained, new.images) / temperature, axis=1).max(axis=1)
    assert found.confidence == pytest.approx(confidence.mean(), abs=1e-5)
    assert found.known_confidence == pytest.approx(rows[-1].confidence.mean(), abs=1e-5)
    guaranteed = {p.accuracy: p.threshold for p in report.guarantees.abstentions if p.threshold is not None}
    assert {answer.accuracy: answer.threshold for answer in found.answered} == guaranteed
    for answer in found.answered:
        number = int((confidence >= answer.threshold).sum())
        assert answer.unknown.value == pytest.approx(number / 90, abs=1.5 / 90)
        assert answer.known.value == pytest.approx((rows[-1].confidence >= answer.threshold).mean(), abs=1.5 / 150)


def test_stored_thresholds_count_for_a_model_that_came_calibrated(trained: MaCSTrainer, test: ImageDataset) -> None:
    trained.model.config.abstention_thresholds = {"0.9": 0.5, "0.95": 1.0, "delta": 0.05}
    report, rows = evaluate_checkpoint(trained, test, ood=unknown(), margin_samples=4)
    del trained.model.config.abstention_thresholds
    assert report.ood.after is None
    low, high = report.ood.answered
    assert (low.accuracy, low.threshold, high.accuracy, high.threshold) == (0.9, 0.5, 0.95, 1.0)
    assert low.known.value == pytest.approx((rows[0].confidence >= 0.5).mean())
    assert (high.known.value, high.known.low, high.known.high) == (0.0, 0.0, wilson(0, 150)[1])


def test_unknown_images_that_are_test_images_are_counted(trained: MaCSTrainer, test: ImageDataset) -> None:
    rows = datasets.concatenate_datasets([pictures(20, 5, brightness=90), pictures(150, 1).select(range(4))])
    new = OodImages(image_dataset(rows.remove_columns("label"), label=None), "user/mixed", "test", 24)
    report, _ = evaluate_checkpoint(trained, test, ood=new, margin_samples=4)
    assert report.ood.copies == 4


# ---- The gallery ----


def rows_of(label: list[int], prediction: list[int], confidence: list[float]) -> SampleRows:
    zeros = np.zeros(len(label), np.float32)
    return SampleRows(*np.array([label, prediction], np.int32), np.array(confidence, np.float32), zeros, zeros, zeros)


def test_the_most_confident_mistakes_come_first() -> None:
    rows = rows_of([0, 1, 2, 0, 1], [1, 1, 0, 2, 0], [0.6, 0.99, 0.9, 0.6, 0.7])
    assert confident_mistakes(rows, 3).tolist() == [2, 4, 0]
    assert confident_mistakes(rows, 9).tolist() == [2, 4, 0, 3]


def test_the_gallery_is_written_where_there_are_mistakes(test: ImageDataset, tmp_path: Path) -> None:
    named = replace(rows_of([0, 1], [0, 2], [0.5, 0.6]), name=np.array(["folder/a.png", "folder/b.png"]))
    assert write_gallery(test, named, NAMES, tmp_path, 7) == tmp_path / "mistakes.png"
    assert (tmp_path / "mistakes.png").stat().st_size > 1000
    assert write_gallery(test, rows_of([0, 1], [0, 1], [0.5, 0.6]), NAMES, tmp_path, 5) is None
    assert not (tmp_path / "mistakes.png").exists()  # that of an earlier run
