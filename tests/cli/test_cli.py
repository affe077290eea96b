"""`macs-hf` on a saved model and a local dataset: what a person who never trains would type."""

import json
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageClassification, ResNetConfig, set_seed

from macs_hf.cli.errors import folder_name, run_name
from macs_hf.cli.main import main
from macs_hf.data.sources import align_labels
from macs_hf.exceptions import ArgumentError
from macs_hf.models.loading import load_classifier


CLASSES = ["ant", "bee", "cat"]


def picture(rng: np.random.Generator, label: int) -> Image.Image:
    """Brighter in the channel of its class."""
    pixels = rng.integers(0, 200, (32, 32, 3))
    pixels[..., label] += 40
    return Image.fromarray(pixels.astype(np.uint8))


def split(size: int, seed: int, names: list[str]) -> Dataset:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(names), size)
    images = [picture(rng, CLASSES.index(names[label])) for label in labels]
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=names)})
    return Dataset.from_dict({"image": images, "label": labels.tolist()}, features=features)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`model`, overconfident; `data` with its classes in the model's order, `mixed` in another."""
    folder = tmp_path_factory.mktemp("cli")
    set_seed(0)
    model, processor = load_classifier("tiny", CLASSES)
    with torch.no_grad():
        model.classifier[-1].weight.mul_(30)
    model.save_pretrained(folder / "model")
    processor.save_pretrained(folder / "model")
    for name, names in (("data", CLASSES), ("mixed", ["cat", "ant", "bee"]), ("two", CLASSES[:2])):
        splits = {"train": split(20, 0, names), "validation": split(120, 1, names), "test": split(60, 2, names)}
        DatasetDict(splits).save_to_disk(str(folder / name))
    DatasetDict(train=split(20, 0, CLASSES), test=split(20, 2, CLASSES)).save_to_disk(str(folder / "untouched"))
    return folder


def run(folder: Path, action: str, data: str, *options: str) -> int:
    output = str(folder / f"{action}-{data}")
    words = [action, str(folder / "model"), "--dataset", str(folder / data), "--cpu", "--output_dir", output, *options]
    try:
        return main(words)
    except SystemExit as left:
        return left.code


def test_evaluate_writes_a_report_and_prints_a_table(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert run(folder, "evaluate", "data", "--corruptions", "cifar", "--corruption_samples", "4") == 0
    report = json.loads((folder / "evaluate-data" / "evaluation.json").read_text())
    assert (report["n"], report["split"], report["after"]) == (60, "test", None)
    assert report["corruptions"]["n"] == 4
    assert (folder / "evaluate-data" / "reliability.png").exists()
    shown = capsys.readouterr().out
    assert f"{100 * report['before']['metrics']['ece']['value']:.2f} %" in shown


def test_calibrate_saves_a_model_that_needs_no_code_of_ours(folder: Path) -> None:
    assert run(folder, "calibrate", "data", "--calibration_split", "validation") == 0
    report = json.loads((folder / "calibrate-data" / "evaluation.json").read_text())
    temperature = report["temperature"]["value"]
    assert temperature > 1
    assert report["after"]["metrics"]["nll"]["value"] < report["before"]["metrics"]["nll"]["value"]
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    logits = []
    for name in ("model", "calibrate-data"):
        model = AutoModelForImageClassification.from_pretrained(folder / name).eval()
        with torch.no_grad():
            logits.append(model(images).logits)
    assert torch.allclose(logits[0] / temperature, logits[1], rtol=1e-4, atol=1e-5)


def test_calibrate_leaves_a_card_and_no_pickles(folder: Path, tmp_path: Path) -> None:
    assert run(folder, "calibrate", "data", "--output_dir", str(tmp_path / "out")) == 0
    assert (tmp_path / "out" / "README.md").read_text().startswith("---\n")
    assert not list((tmp_path / "out").glob("*.bin"))
    assert run(folder, "evaluate", "data", "--output_dir", str(tmp_path / "measured")) == 0
    assert not list((tmp_path / "measured").glob("*.bin"))


def test_the_current_folder_gets_no_hidden_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(folder, "calibrate", "data", "--output_dir", ".") == 0
    assert (tmp_path / "config.json").exists()
    assert 'pipeline("image-classification", model=".")' in (tmp_path / "README.md").read_text()
    assert not list(tmp_path.glob(".*"))


def test_default_folders_carry_the_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert folder_name("owner/model") == "owner-model"
    assert folder_name("resnet50") == "resnet50"
    Path("runs", "mine").mkdir(parents=True)
    assert folder_name("runs/mine") == "mine"
    assert folder_name(".") == run_name(".") == tmp_path.name
    assert run_name("runs/new/") == "new"


@pytest.mark.parametrize("action", ["evaluate", "calibrate"])
def test_another_image_size_is_measured_and_saved(action: str, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(folder, action, "data", "--output_dir", str(out), "--image_size", "48") == 0
    model = AutoModelForImageClassification.from_pretrained(folder / "model").eval()
    _, processor = load_classifier("tiny", CLASSES, image_size=48)
    data = datasets.load_from_disk(str(folder / "data"))["test"]
    with torch.no_grad():
        logits = model(**processor(list(data["image"]), return_tensors="pt")).logits
    nll = torch.nn.functional.cross_entropy(logits, torch.tensor(data["label"])).item()
    report = json.loads((out / "evaluation.json").read_text())
    assert report["before"]["metrics"]["nll"]["value"] == pytest.approx(nll, rel=1e-4)
    if action == "calibrate":
        saved = AutoImageProcessor.from_pretrained(out)
        assert (saved.size["height"], saved.size["width"]) == (48, 48)


def test_evaluate_says_nothing_about_a_validation_split_that_it_does_not_use(
    folder: Path, capsys: pytest.CaptureFixture
) -> None:
    assert run(folder, "evaluate", "untouched") == 0
    assert "better calibrated" not in capsys.readouterr().err
    assert run(folder, "calibrate", "untouched") == 0
    assert "better calibrated" in capsys.readouterr().err


def test_the_training_split_can_be_measured(folder: Path, tmp_path: Path) -> None:
    assert run(folder, "evaluate", "data", "--split", "train", "--output_dir", str(tmp_path / "out")) == 0
    report = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert (report["n"], report["split"]) == (20, "train")


def test_classes_in_another_order_are_aligned(folder: Path) -> None:
    assert run(folder, "evaluate", "mixed") == 0
    model = AutoModelForImageClassification.from_pretrained(folder / "model").eval()
    _, processor = load_classifier("tiny", CLASSES)
    data = datasets.load_from_disk(str(folder / "mixed"))["test"]
    names = data.features["label"].names
    with torch.no_grad():
        predicted = model(**processor(list(data["image"]), return_tensors="pt")).logits.argmax(-1).tolist()
    right = [model.config.id2label[p] == names[y] for p, y in zip(predicted, data["label"], strict=True)]
    report = json.loads((folder / "evaluate-mixed" / "evaluation.json").read_text())
    assert report["before"]["metrics"]["accuracy"]["value"] == pytest.approx(np.mean(right))


def test_other_class_names_are_kept_in_report_and_card(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    names = ClassLabel(names=["Ant", "wasp", "tom cat"])
    data = datasets.load_from_disk(str(folder / "data")).cast_column("label", names)
    data.save_to_disk(str(folder / "renamed"))
    assert run(folder, "calibrate", "renamed", "--output_dir", str(tmp_path)) == 0
    report = json.loads((tmp_path / "evaluation.json").read_text())
    assert report["renamed_classes"] == [["bee", "wasp"], ["cat", "tom cat"]]
    said = "taken to be in the same order: bee is wasp, cat is tom cat. If that is wrong, so are the results."
    assert said in " ".join(capsys.readouterr().err.split())
    assert all(said in (tmp_path / name).read_text() for name in ("README.md", "report.html"))
    for same in ("data", "mixed", "two"):  # "two" has a part of the classes
        assert run(folder, "evaluate", same) == 0
        report = json.loads((folder / f"evaluate-{same}" / "evaluation.json").read_text())
        assert report["renamed_classes"] == []


@pytest.mark.parametrize(
    ("action", "data", "options", "named"),
    [
        ("calibrate", "data", ["--calibration_split", "test"], "validation_split='test'"),
        ("evaluate", "data", ["--split", "holdout"], "--split"),
        ("evaluate", "data", ["--image_column", "picture"], "--image_column"),
        ("evaluate", "data", ["--output_dir", "{folder}/model"], "--output_dir"),
        ("calibrate", "data", ["--publish_gallery"], "--gallery"),
    ],
)
def test_mistakes_end_in_a_line(
    action: str, data: str, options: list[str], named: str, folder: Path, capsys: pytest.CaptureFixture
) -> None:
    assert run(folder, action, data, *(word.format(folder=folder) for word in options)) == 2
    shown = capsys.readouterr().err
    assert named in shown.splitlines()[-1] and "Traceback" not in shown


def test_where_a_mistake_was_found_is_shown_on_request(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACS_HF_TRACEBACK", "1")
    with pytest.raises(ArgumentError):
        run(folder, "evaluate", "data", "--split", "holdout")


def test_names_that_differ_only_in_case_stay_apart() -> None:
    config = ResNetConfig(id2label={0: "b", 1: "A", 2: "a"}, label2id={"b": 0, "A": 1, "a": 2})
    data = Dataset.from_dict({"label": [0, 1, 2]}, features=Features({"label": ClassLabel(names=["a", "b", "A"])}))
    assert list(align_labels(data, "label", ["a", "b", "A"], config)["label"]) == [2, 0, 1]
    plain = ResNetConfig(id2label={0: "Cat", 1: "Dog"}, label2id={"Cat": 0, "Dog": 1})
    data = Dataset.from_dict({"label": [0, 1]}, features=Features({"label": ClassLabel(names=["dog", "cat"])}))
    assert list(align_labels(data, "label", ["dog", "cat"], plain)["label"]) == [1, 0]
    with pytest.raises(ValueError, match="same names but other numbers"):
        align_labels(data, "label", ["dog", "bird"], plain)
