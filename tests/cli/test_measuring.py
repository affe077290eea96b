"""`macs-hf evaluate` and `calibrate` with groups, unknown images, a size and a gallery; `train` with copies."""

import json
from pathlib import Path

import datasets
import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from PIL import Image
from transformers import AutoModelForImageClassification, Trainer, set_seed

from macs_hf.cli.main import main
from macs_hf.models.loading import load_classifier
from macs_hf.report.report import load_run


CLASSES = ["ant", "bee", "cat"]


def split(size: int, seed: int, names: list[str] = CLASSES) -> Dataset:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(names), size)
    images = rng.integers(0, 200, (size, 32, 32, 3)) + 40 * labels[:, None, None, None] // len(names)
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=names), "camera": Value("string")})
    features["number"] = Value("int64")
    rows = {
        "image": [Image.fromarray(np.uint8(image)) for image in images],
        "label": labels.tolist(),
        "camera": [("old", "new")[place % 2] for place in range(size)],
        "number": list(range(size)),
    }
    return Dataset.from_dict(rows, features=features)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`model`; `data` of its classes; `textures` of others; `ants` of its own; `some`, where one class is its own."""
    folder = tmp_path_factory.mktemp("measuring")
    set_seed(0)
    model, processor = load_classifier("tiny", CLASSES)
    model.save_pretrained(folder / "model")
    processor.save_pretrained(folder / "model")
    data = {"train": split(40, 0), "validation": split(110, 1), "test": split(120, 2)}
    DatasetDict(data).save_to_disk(str(folder / "data"))
    for name, names in (("textures", ["brick", "sky"]), ("ants", ["ant", "Bee"]), ("some", ["cat", "sky"])):
        DatasetDict(train=split(30, 3, names)).save_to_disk(str(folder / name))
    return folder


def run(folder: Path, action: str, *options: str) -> int:
    words = [action, str(folder / "model"), "--dataset", str(folder / "data"), "--cpu", *options]
    try:
        return main(words)
    except SystemExit as left:
        return left.code


def test_groups_unknown_images_and_mistakes_of_an_evaluation(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    asked = ("--group_column", "camera", "--ood_dataset", str(folder / "some"), "--gallery", "4")
    assert run(folder, "evaluate", "--output_dir", str(tmp_path), *asked) == 0
    found, shown = load_run(tmp_path), capsys.readouterr()
    report = found.report
    assert {group.name: group.n for group in report.groups.groups} == {"old": 60, "new": 60}
    assert report.groups.column == "camera" and found.rows.group.tolist() == ["old", "new"] * 60
    assert {group.name for group in report.classes.groups} <= set(CLASSES)
    assert report.image_size == (32, 32) and "(n = 120, 32 x 32 pixels)" in shown.out
    assert report.ood.split == "train" and report.ood.left_out == ("cat",)
    assert report.ood.n + shown.err.count("are left out") < 30 and report.ood.after is None
    assert (tmp_path / "mistakes.png").is_file() and ", mistakes.png" in shown.out
    assert not (tmp_path / "README.md").exists()


def test_a_model_that_was_trained_at_another_size_by_plain_trainer(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Its files say 32, so 32 is measured; another size is another number, in another folder, and in what follows."""
    monkeypatch.chdir(tmp_path)
    sizes = {}
    for size, out in (([], "model-data-evaluate"), (["--image_size", "48"], "model-data-48px-evaluate")):
        assert run(folder, "evaluate", *size) == 0
        report = json.loads(Path("runs", out, "evaluation.json").read_text())
        sizes[tuple(report["image_size"])] = report["before"]["metrics"]["nll"]["value"]
        following = capsys.readouterr().out.partition("\nNext:\n")[2].splitlines()
        assert following and all(("--image_size 48" in line) == bool(size) for line in following)
    assert set(sizes) == {(32, 32), (48, 48)} and sizes[32, 32] != sizes[48, 48]


def test_a_calibrated_model_at_another_size_gets_a_warning(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    model = AutoModelForImageClassification.from_pretrained(folder / "model")
    model.config.calibration_temperature = 1.5
    model.save_pretrained(tmp_path / "model")
    load_classifier("tiny", CLASSES)[1].save_pretrained(tmp_path / "model")
    words = ["evaluate", str(tmp_path / "model"), "--dataset", str(folder / "data"), "--cpu"]
    for size, expected in (("32", False), ("48", True)):
        assert main([*words, "--image_size", size, "--output_dir", str(tmp_path / size)]) == 0
        shown = capsys.readouterr()
        assert ("image_size=48" in shown.err) == expected
        assert f"--image_size {size}  see it in the browser" in shown.out  # at the size that was measured


def test_the_card_of_calibrate_shows_mistakes_on_request_only(folder: Path, tmp_path: Path) -> None:
    assert run(folder, "calibrate", "--output_dir", str(tmp_path / "a"), "--gallery", "2") == 0
    card = (tmp_path / "a" / "README.md").read_text()
    assert "mistakes.png" not in card and "32 x 32 pixels" in card and "## Classes" in card
    assert run(folder, "calibrate", "--output_dir", str(tmp_path / "b"), "--gallery", "2", "--publish_gallery") == 0
    assert "(mistakes.png)" in (tmp_path / "b" / "README.md").read_text()
    leakage = load_run(tmp_path / "b").report.leakage
    assert leakage.compared == {"validation": 110, "test": 120} and leakage.found == ()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--group_column", "hospital"], "--group_column"),
        (["--group_column", "number"], "group_column"),
        (["--ood_dataset", "{folder}/ants"], "ood_dataset"),
        (["--ood_dataset", "{folder}/data"], "--ood_dataset"),
        (["--ood_dataset", "{folder}/textures", "--ood_split", "test"], "--ood_split"),
        (["--ood_split", "test"], "--ood_dataset"),
    ],
)
def test_mistakes_are_found_before_the_long_work(
    options: list[str],
    named: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.setattr(Trainer, "predict", None)
    options = [word.format(folder=folder) for word in options]
    assert run(folder, "evaluate", "--output_dir", str(tmp_path), *options) == 2
    assert named in capsys.readouterr().err


def test_training_says_before_it_starts_which_test_images_it_will_see(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    leaked = datasets.concatenate_datasets([split(40, 2), split(40, 0).select(range(9))])
    DatasetDict(train=split(40, 0), validation=split(20, 1), test=leaked).save_to_disk(str(tmp_path / "data"))
    words = ["train", "--dataset", str(tmp_path / "data"), "--max_steps", "1", "--use_cpu", "true", "--disable_tqdm"]
    words += ["true", "--corruptions", "none", "--output_dir", str(tmp_path / "run"), "--group_column", "camera"]
    assert main([*words, "--ood_dataset", str(folder / "textures")]) == 0
    shown = capsys.readouterr().out
    line = "copies    between train, validation and test: 9 of 49 test images are also in train\n"
    assert line in shown and shown.index(line) < shown.index("step 1/1   loss ")
    found = load_run(tmp_path / "run").report
    assert [(pair.split, pair.other, pair.count) for pair in found.leakage.found] == [("test", "train", 9)]
    assert found.ood.after is not None and found.groups.n == 49
    assert "9 of 49 test images are also in train" in (tmp_path / "run" / "README.md").read_text()
