"""`macs-hf evaluate` and `calibrate` on a saved model and a local dataset, and what `train` says and stores alike."""

import contextlib
import io
import json
from pathlib import Path
from typing import NamedTuple

import datasets
import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageClassification, ResNetConfig, set_seed

from macs_hf.cli.main import main
from macs_hf.cli.process import folder_name
from macs_hf.data.sources import align_labels
from macs_hf.models.loading import load_classifier
from macs_hf.report.report import EvaluationReport, load_run


CLASSES = ["ant", "bee", "cat"]


def split(size: int, seed: int, names: list[str] = CLASSES) -> Dataset:
    """Images that are brighter in the channel of their class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(names), size)
    images = rng.integers(0, 200, (size, 32, 32, 3))
    channels = [CLASSES.index(names[label]) if names[label] in CLASSES else 0 for label in labels]
    images[np.arange(size), :, :, channels] += 40
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=names), "camera": Value("string")})
    rows = {
        "image": [Image.fromarray(np.uint8(image)) for image in images],
        "label": labels.tolist(),
        "camera": [("old", "new")[place % 2] for place in range(size)],
    }
    return Dataset.from_dict(rows, features=features)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """
    `model`, overconfident and at chance level; `data` with its classes in the model's order, `mixed` in another, `two`
    of them; `untouched` without a validation split; `textures`, `ants` and `some`, whose classes are not all its own.
    """
    folder = tmp_path_factory.mktemp("measuring")
    set_seed(0)
    model, processor = load_classifier("tiny", CLASSES)
    with torch.no_grad():
        model.classifier[-1].weight.mul_(30)
    model.config.prediction_set_thresholds = {"lac": {"0.9": 0.123}}  # of an earlier calibration
    model.save_pretrained(folder / "model")
    processor.save_pretrained(folder / "model")
    for name, names in (("data", CLASSES), ("mixed", ["cat", "ant", "bee"]), ("two", CLASSES[:2])):
        splits = {"train": split(20, 0, names), "validation": split(400, 1, names), "test": split(60, 2, names)}
        DatasetDict(splits).save_to_disk(str(folder / name))
    DatasetDict(train=split(20, 0), test=split(20, 2)).save_to_disk(str(folder / "untouched"))
    for name, names in (("textures", ["brick", "sky"]), ("ants", ["ant", "Bee"]), ("some", ["cat", "sky"])):
        DatasetDict(train=split(30, 3, names)).save_to_disk(str(folder / name))
    return folder


class Done(NamedTuple):
    folder: Path
    report: EvaluationReport
    shown: str


def words(folder: Path, action: str, data: str, *options: str) -> list[str]:
    return [action, str(folder / "model"), "--dataset", str(folder / data), "--cpu", *options]


def done(folder: Path, action: str, output: Path, *options: str) -> Done:
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        assert main(words(folder, action, "data", "--output_dir", str(output), *options)) == 0
    return Done(output, load_run(output).report, shown.getvalue())


@pytest.fixture(scope="module")
def evaluated(folder: Path) -> Done:
    asked = ("--group_column", "camera", "--ood_dataset", str(folder / "some"), "--gallery", "4")
    return done(folder, "evaluate", folder / "out-e", *asked, "--corruptions", "cifar", "--corruption_samples", "4")


@pytest.fixture(scope="module")
def calibrated(folder: Path) -> Done:
    return done(folder, "calibrate", folder / "out-c", "--calibration_split", "validation", "--gallery", "2")


def probabilities(model: Path, data: Path, size: int | None = None) -> tuple[torch.Tensor, Dataset]:
    _, processor = load_classifier("tiny", CLASSES, image_size=size)
    test = datasets.load_from_disk(str(data))["test"]
    model = AutoModelForImageClassification.from_pretrained(model).eval()
    with torch.no_grad():
        return model(**processor(list(test["image"]), return_tensors="pt")).logits, test


# ---- Evaluate ----


def test_evaluate_writes_what_was_asked_for(evaluated: Done) -> None:
    report = evaluated.report
    assert (report.n, report.split, report.after, report.corruptions.n) == (60, "test", None, 4)
    assert report.image_size == (32, 32) and "(n = 60, 32 x 32 pixels)" in evaluated.shown
    assert {group.name: group.n for group in report.groups.groups} == {"old": 30, "new": 30}
    assert report.groups.column == "camera" and {group.name for group in report.classes.groups} <= set(CLASSES)
    assert load_run(evaluated.folder).rows.group.tolist() == ["old", "new"] * 30
    assert report.ood.split == "train" and report.ood.left_out == ("cat",) and report.ood.after is None
    assert (evaluated.folder / "reliability.png").exists() and not (evaluated.folder / "README.md").exists()
    assert f", {evaluated.folder / 'mistakes.png'}" in evaluated.shown


def test_classes_in_another_order_are_aligned(folder: Path, tmp_path: Path) -> None:
    assert main(words(folder, "evaluate", "mixed", "--output_dir", str(tmp_path))) == 0
    logits, test = probabilities(folder / "model", folder / "mixed")
    named = [test.features["label"].names[label] for label in test["label"]]
    right = [CLASSES[place] == name for place, name in zip(logits.argmax(-1).tolist(), named, strict=True)]
    report = EvaluationReport.load(tmp_path / "evaluation.json")
    assert report.before.metrics["accuracy"].value == pytest.approx(np.mean(right))
    assert report.renamed_classes == ()


def test_a_size_is_kept_in_the_folder_the_numbers_and_what_follows(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Of a model that plain Trainer trained at another size than its files say."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(EvaluationReport, "above_chance", None)  # or there would be no use in a temperature
    for size, out in ((None, "model-data-evaluate"), (48, "model-data-48px-evaluate")):
        sized = [] if size is None else ["--image_size", str(size)]
        assert main(words(folder, "evaluate", "data", "--label_column", "label", *sized)) == 0
        logits, test = probabilities(folder / "model", folder / "data", size)
        nll = torch.nn.functional.cross_entropy(logits, torch.tensor(test["label"])).item()
        report = EvaluationReport.load(Path("runs", out, "evaluation.json"))
        assert report.before.metrics["nll"].value == pytest.approx(nll, rel=1e-4)
        following = capsys.readouterr().out.partition("Next:\n")[2].splitlines()
        assert all(("--image_size 48" in line) == (size == 48) for line in following)
        assert ["--label_column label" in line for line in following] == [True, False]  # calibrate, and the page


def test_a_calibrated_model_at_another_size_gets_a_warning(
    folder: Path, calibrated: Done, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    command = ["evaluate", str(calibrated.folder), "--dataset", str(folder / "data"), "--cpu", "--max_samples", "20"]
    for size, expected in (("32", False), ("48", True)):
        assert main([*command, "--image_size", size, "--output_dir", str(tmp_path / size)]) == 0
        assert ("image_size=48" in capsys.readouterr().err) == expected


# ---- Calibrate ----


def test_calibrate_saves_a_model_that_needs_no_code_of_ours(folder: Path, calibrated: Done) -> None:
    report = calibrated.report
    assert report.temperature.value > 1
    assert report.after.metrics["nll"].value < report.before.metrics["nll"].value
    before, after = (probabilities(model, folder / "data")[0] for model in (folder / "model", calibrated.folder))
    assert torch.allclose(before / report.temperature.value, after, rtol=1e-4, atol=1e-5)
    assert (calibrated.folder / "README.md").read_text().startswith("---\n")
    assert not list(calibrated.folder.glob("*.bin"))
    # Nobody trained it.
    assert report.above_chance is False and "calibrated model" not in calibrated.shown


def check_stored(folder: Path) -> EvaluationReport:
    report = EvaluationReport.load(folder / "evaluation.json")
    stored = json.loads((folder / "config.json").read_text())["prediction_set_thresholds"]
    for sets in report.guarantees.prediction_sets:
        assert stored[sets.method][str(sets.coverage)] == sets.threshold
    reloaded = AutoModelForImageClassification.from_pretrained(folder).config
    assert reloaded.prediction_set_thresholds == stored and report.guarantees.num_guarantee == 200
    assert '["lac"]["0.9"]' in (folder / "README.md").read_text()
    return report


def test_calibrate_stores_what_the_report_guarantees(calibrated: Done) -> None:
    guarantees = check_stored(calibrated.folder).guarantees
    assert guarantees.class_names == tuple(CLASSES) and guarantees.exact


def test_a_temperature_that_gains_nothing_is_used_only_if_it_is_forced(
    folder: Path, calibrated: Done, tmp_path: Path
) -> None:
    """The one that is folded in already fits these images best."""
    command = ["calibrate", str(calibrated.folder), "--dataset", str(folder / "data"), "--cpu"]
    for force in ([], ["--force_temperature"]):
        assert main([*command, "--output_dir", str(tmp_path / str(len(force))), *force]) == 0
        report = EvaluationReport.load(tmp_path / str(len(force)) / "evaluation.json")
        assert report.has_temperature == bool(force) and report.temperature.value == pytest.approx(1, abs=1e-3)


def test_other_class_names_are_kept_in_report_and_card(
    folder: Path, calibrated: Done, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    names = ClassLabel(names=["Ant", "wasp", "tom cat"])
    data = datasets.load_from_disk(str(folder / "data")).cast_column("label", names)
    data.save_to_disk(str(folder / "renamed"))
    shown = ("--gallery", "2", "--publish_gallery", "--output_dir", str(tmp_path))
    assert main(words(folder, "calibrate", "renamed", *shown)) == 0
    report = EvaluationReport.load(tmp_path / "evaluation.json")
    assert report.renamed_classes == (("bee", "wasp"), ("cat", "tom cat"))
    assert "bee is wasp, cat is tom cat" in " ".join(capsys.readouterr().err.split())
    assert all("bee is wasp, cat is tom cat" in (tmp_path / name).read_text() for name in ("README.md", "report.html"))
    # Mistakes are in a card on request only.
    assert "(mistakes.png)" in (tmp_path / "README.md").read_text()
    assert "mistakes.png" not in (calibrated.folder / "README.md").read_text()


def test_the_current_folder_gets_no_hidden_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Of a dataset without a validation split, of which calibrate warns."""
    monkeypatch.chdir(tmp_path)
    assert main(words(folder, "calibrate", "untouched", "--output_dir", ".", "--image_size", "48")) == 0
    assert "better calibrated" in capsys.readouterr().err
    assert 'pipeline("image-classification", model=".")' in (tmp_path / "README.md").read_text()
    saved = AutoImageProcessor.from_pretrained(tmp_path)
    assert (saved.size["height"], saved.size["width"]) == (48, 48)
    assert not list(tmp_path.glob(".*"))


# ---- Mistakes ----


@pytest.mark.parametrize(
    ("action", "data", "options", "named"),
    [
        ("calibrate", "data", ["--calibration_split", "test"], "validation_split='test'"),
        ("evaluate", "data", ["--split", "holdout"], "--split"),
        ("evaluate", "data", ["--image_column", "picture"], "--image_column"),
        ("evaluate", "data", ["--output_dir", "{folder}/model"], "--output_dir"),
        ("calibrate", "data", ["--publish_gallery"], "--gallery"),
        ("evaluate", "data", ["--group_column", "hospital"], "--group_column"),
        ("evaluate", "data", ["--ood_dataset", "{folder}/ants"], "ood_dataset"),
        ("evaluate", "data", ["--ood_dataset", "{folder}/data"], "--ood_dataset"),
        ("evaluate", "data", ["--ood_dataset", "{folder}/textures", "--ood_split", "test"], "--ood_split"),
        ("evaluate", "data", ["--ood_split", "test"], "--ood_dataset"),
    ],
)
def test_mistakes_end_in_a_line_before_the_long_work(
    action: str,
    data: str,
    options: list[str],
    named: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.setattr("macs_hf.cli.measure.evaluate_checkpoint", None)
    options = [word.format(folder=folder) for word in options]
    with pytest.raises(SystemExit) as left:
        main(words(folder, action, data, "--output_dir", str(tmp_path), *options))
    shown = capsys.readouterr().err
    assert left.value.code == 2 and named in shown.splitlines()[-1] and "Traceback" not in shown


# ---- Names ----


def test_default_folders_carry_the_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert folder_name("owner/model") == "owner-model"
    assert folder_name("resnet50") == "resnet50"
    Path("runs", "mine").mkdir(parents=True)
    assert folder_name("runs/mine") == "mine"
    assert folder_name(".") == tmp_path.name


def test_names_that_differ_only_in_case_stay_apart() -> None:
    config = ResNetConfig(id2label={0: "b", 1: "A", 2: "a"}, label2id={"b": 0, "A": 1, "a": 2})
    data = Dataset.from_dict({"label": [0, 1, 2]}, features=Features({"label": ClassLabel(names=["a", "b", "A"])}))
    assert list(align_labels(data, "label", ["a", "b", "A"], config)["label"]) == [2, 0, 1]
    plain = ResNetConfig(id2label={0: "Cat", 1: "Dog"}, label2id={"Cat": 0, "Dog": 1})
    data = Dataset.from_dict({"label": [0, 1]}, features=Features({"label": ClassLabel(names=["dog", "cat"])}))
    assert list(align_labels(data, "label", ["dog", "cat"], plain)["label"]) == [1, 0]


# ---- Train ----

QUICK = ["--corruptions", "none", "--disable_tqdm", "true", "--use_cpu", "true", "--dataloader_pin_memory", "false"]


def test_training_says_before_it_starts_which_test_images_it_will_see(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    leaked = datasets.concatenate_datasets([split(40, 2), split(40, 0).select(range(9))])
    DatasetDict(train=split(40, 0), validation=split(20, 1), test=leaked).save_to_disk(str(tmp_path / "data"))
    command = ["train", "--dataset", str(tmp_path / "data"), "--max_steps", "1", *QUICK, "--group_column", "camera"]
    assert main([*command, "--output_dir", str(tmp_path / "run"), "--ood_dataset", str(folder / "textures")]) == 0
    shown = capsys.readouterr().out
    line = "copies    between train, validation and test: 9 of 49 test images are also in train\n"
    assert line in shown and shown.index(line) < shown.index("step 1/1   loss ")
    found = load_run(tmp_path / "run").report
    assert [(pair.split, pair.other, pair.count) for pair in found.leakage.found] == [("test", "train", 9)]
    assert found.ood.after is not None and found.groups.n == 49


def test_train_stores_what_the_report_guarantees(folder: Path, tmp_path: Path) -> None:
    best = "--load_best_model_at_end true --eval_strategy steps --save_strategy steps --eval_steps 2 --save_steps 2"
    command = ["train", "--dataset", str(folder / "data"), "--output_dir", str(tmp_path), "--max_steps", "2", *QUICK]
    assert main([*command, *best.split()]) == 0
    assert not check_stored(tmp_path).guarantees.exact
