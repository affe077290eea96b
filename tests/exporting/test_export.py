"""A model as an exported folder, and what is refused before anything is written."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from digits_model import save_digits_model
from safetensors.torch import load_file, save_file
from tiny import NUM_LABELS, SIZE, Images, build
from transformers import AutoConfig, AutoImageProcessor, TimmWrapperImageProcessor, ViTImageProcessor


onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from macs_hf.cli.main import main  # noqa: E402
from macs_hf.exporting import ExportReport, OnnxClassifier, export, export_model  # noqa: E402
from macs_hf.exporting.card import temperature_sentence  # noqa: E402
from macs_hf.exporting.graph import divide_logits  # noqa: E402
from macs_hf.exporting.preprocessing import described_processor, sample_photographs  # noqa: E402
from macs_hf.exporting.runtime import predict  # noqa: E402


PROCESSOR = ViTImageProcessor(size={"height": SIZE, "width": SIZE}, image_mean=[0.5] * 3, image_std=[0.5] * 3)
TEST, HELD_OUT = Images(60, seed=1), Images(300, seed=2)


def model_that_knows() -> torch.nn.Module:
    """A ResNet, and labels of the images above drawn from what it says: it is calibrated."""
    model = build("resnet").eval()
    with torch.no_grad():
        logits = model(pixel_values=HELD_OUT.images).logits
        head, spread = model.classifier[1], logits.std(0).mean()
        head.weight *= 2 / spread  # between sure and unsure, and no class above the others
        head.bias.copy_(2 / spread * (head.bias - logits.mean(0)))
        for images in (TEST, HELD_OUT):
            probabilities = model(pixel_values=images.images).logits.softmax(1)
            draws = torch.Generator().manual_seed(0)
            images.labels = probabilities.multinomial(1, generator=draws)[:, 0]
    return model


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export whose int8 file, by the quantiser's fault, first had logits twice as large."""
    folder = tmp_path_factory.mktemp("export") / "exported"
    real = export.quantize

    def wrong(source: Path, target: Path, images: object) -> tuple[str, ...]:
        (head,) = real(source, target, images)
        model = onnx.load(target)
        node = next(node for node in model.graph.node if node.name == head)
        for tensor in model.graph.initializer:
            if tensor.name in node.input:
                tensor.CopyFrom(onnx.numpy_helper.from_array(2 * onnx.numpy_helper.to_array(tensor), tensor.name))
        onnx.save(model, target)
        return (head,)

    model, data = model_that_knows(), {"test": TEST, "held_out": HELD_OUT}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "quantize", wrong)
        export_model(model, PROCESSOR, folder, int8=True, **data, split="test", dataset="tiny")
    return folder


def test_the_files_lie_where_other_libraries_look_for_them(exported: Path) -> None:
    names = sorted(path.relative_to(exported).as_posix() for path in exported.rglob("*") if path.is_file())
    files = ["onnx/model.onnx", "onnx/model_quantized.onnx"]
    assert names == sorted([*files, "README.md", "config.json", "export.json", "preprocessor_config.json"])
    assert AutoConfig.from_pretrained(exported).num_labels == NUM_LABELS
    assert isinstance(AutoImageProcessor.from_pretrained(exported), ViTImageProcessor)
    assert ExportReport.load(exported).files == {name: (exported / name).stat().st_size for name in files}


def test_float32_agrees_with_the_model(exported: Path) -> None:
    agreement = ExportReport.load(exported).agreement
    assert agreement.n == agreement.same_predictions == len(TEST)
    assert agreement.largest_difference < 1e-5 * agreement.largest_logit


def test_a_drifted_int8_file_gives_calibrated_logits(exported: Path) -> None:
    report = ExportReport.load(exported)
    assert report.int8.drift.low < 2 < report.int8.drift.high
    float32, labels = predict(OnnxClassifier(exported / "onnx/model.onnx"), TEST, 16)
    int8, _ = predict(OnnxClassifier(exported / "onnx/model_quantized.onnx"), TEST, 16)
    np.testing.assert_array_equal(labels, TEST.labels)
    assert np.abs(int8 - float32).std() < 0.1 * float32.std()
    nll = torch.nn.functional.cross_entropy(torch.from_numpy(int8), TEST.labels).item()
    assert report.int8.published.metrics["nll"].value == pytest.approx(nll, rel=1e-4)
    margins = [part.metrics["logit_margin"].value for part in (report.int8.before, report.int8.published)]
    assert margins[0] == pytest.approx(report.int8.drift.folded * margins[1], rel=1e-4)


def test_an_earlier_export_is_replaced_and_another_folder_is_not(exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    shutil.copytree(exported, folder)
    report = export_model(build("resnet"), PROCESSOR, folder, name="user/again")
    assert report.float32 is None and report.agreement.n == 16
    assert not (folder / "onnx/model_quantized.onnx").exists()
    assert ExportReport.load(folder).model == "user/again"
    (folder / "export.json").unlink()
    with pytest.raises(ValueError, match="no earlier export"):
        export_model(build("resnet"), PROCESSOR, folder)


@pytest.mark.parametrize("data", [{}, {"test": TEST}, {"held_out": HELD_OUT}])
def test_int8_needs_images(data: dict, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="int8=True needs images"):
        export_model(build("resnet"), PROCESSOR, tmp_path / "out", int8=True, **data)
    assert not (tmp_path / "out").exists()


def test_a_graph_that_disagrees_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = export.write_onnx

    def wrong(*args: object) -> int:
        opset = real(*args)
        divide_logits(args[2], 1.5)
        return opset

    monkeypatch.setattr(export, "write_onnx", wrong)
    model = build("resnet")
    with torch.no_grad():
        model.classifier[1].bias += 5
    with pytest.raises(ValueError, match="gives other logits than the model"):
        export_model(model, PROCESSOR, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("macs_hf.exporting.runtime.find_spec", lambda name: None if "runtime" in name else object())
    with pytest.raises(ImportError, match=r"needs onnxruntime, which is not installed: pip install onnxruntime"):
        export_model(build("resnet"), PROCESSOR, tmp_path / "out")


@pytest.mark.parametrize("mode", ["center", "squash"])
def test_the_processor_of_timm_is_described_for_others(mode: str) -> None:
    settings = {"input_size": (3, 48, 48), "crop_pct": 0.875, "crop_mode": mode, "interpolation": "bicubic"}
    stats = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    own = TimmWrapperImageProcessor({**settings, **stats}, "resnet18")
    described = described_processor(own)
    expected, found = sample_photographs(own), sample_photographs(described)
    levels = 255 * 0.225 * (found - expected).abs()  # of 256
    assert found.shape == (16, 3, 48, 48)
    assert levels.max() < 2.1 and levels.mean() < 0.02  # two libraries round a pixel differently
    assert json.loads(described.to_json_string())["image_processor_type"] == "BitImageProcessor"


def test_a_crop_without_a_description_is_refused(tmp_path: Path) -> None:
    settings = {"input_size": (3, SIZE, SIZE), "crop_pct": 1.0, "crop_mode": "border", "interpolation": "bicubic"}
    processor = TimmWrapperImageProcessor({**settings, "mean": (0.5,) * 3, "std": (0.5,) * 3}, "resnet10t")
    with pytest.raises(ValueError, match="crop_mode='border'"):
        export_model(build("timm"), processor, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_command_exports_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    save_digits_model(tmp_path / "model", temperature=1.0)
    argv = ["export", str(tmp_path / "model"), "--output_dir", str(tmp_path / "out"), "--dataset", "digits", "--int8"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    report = ExportReport.load(tmp_path / "out")
    assert (report.model, report.dataset, report.n) == ("model", "digits", 450)
    assert report.int8.drift.low < 1.1 and report.int8.drift.high > 0.9 and temperature_sentence(report) in out
    assert f"{report.int8.published.metrics['nll'].value:.3f} [" in out
    assert str(tmp_path) not in (tmp_path / "out" / "README.md").read_text()
    header, work, results = out.split("\n\n")[:3]
    assert "digits, 10 classes: 135 train (a tenth, split off) images, 450 test images" in header
    assert work.splitlines() == [
        "writing the float32 file",
        "comparing it with PyTorch",
        "testing float32 on 450 images",
        "writing the int8 file, with ranges of 135 images",
        "temperature of float32 on 135 images",
        "temperature of int8 on 135 images",
        "testing int8 on 450 images",
        "computing intervals",
    ]
    assert results == "model as ONNX on digits, test (n = 450)"
    assert f"The files are in {tmp_path / 'out'}:\n  onnx/model.onnx, onnx/model_quantized.onnx, " in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--int8"], "--int8 needs images"),
        ([], "holds files that are no earlier export"),
        (["--split", "test"], "--split does nothing without images to measure on: name them with --dataset"),
        (["--skip_bad_images"], "--skip_bad_images does nothing without images"),
        (["--dataset", "digits", "--calibration_split", "validation"], "--calibration_split is for the int8 file"),
    ],
)
def test_the_command_refuses_before_it_loads(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "own.txt").write_text("mine")
    folder = tmp_path if not options else tmp_path / "out"
    with pytest.raises(SystemExit) as caught:
        main(["export", "no/such-model", "--output_dir", str(folder), *options])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["own.txt"]


def without_head(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if not name.startswith("classifier")}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})


def with_remote_code(folder: Path) -> None:
    """Code beside the weights that would leave a file if it ran."""
    config = {"model_type": "own", "auto_map": {"AutoConfig": "own.C", "AutoModelForImageClassification": "own.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\nclass C: pass\nclass M: pass\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_head, "has no weights for classifier.1.bias, classifier.1.weight: it is not a trained classifier"),
        (with_remote_code, "needs code from its own repository, which is never run"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_a_sentence(
    change: Callable[[Path], None], message: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    model = tmp_path / "model"
    build("resnet").save_pretrained(model)
    PROCESSOR.save_pretrained(model)
    change(model)
    with pytest.raises(SystemExit) as caught:
        main(["export", str(model), "--output_dir", str(tmp_path / "out")])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["model"] and not (model / "ran").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_nothing(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """While the files are checked, when the first of them is written."""

    def stopped(*args: object, **kwargs: object) -> None:
        assert list(tmp_path.rglob("model.onnx"))
        os.kill(os.getpid(), number)

    save_digits_model(tmp_path / "model")
    monkeypatch.setattr(export, "_agreement", stopped)
    with pytest.raises(SystemExit) as left:
        main(["export", str(tmp_path / "model"), "--output_dir", str(tmp_path / "new")])
    assert left.value.code == 128 + number
    assert capfd.readouterr().err.splitlines()[-1] == (
        f"macs-hf export: Stopped by {number.name}. Nothing was written. The same command starts at the beginning."
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
