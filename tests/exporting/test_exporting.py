"""ONNX files against the models they are made from, the folder they come in, and what is refused."""

import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from digits_model import save_digits_model
from tiny import NUM_LABELS, SIZE, Images, build
from transformers import AutoConfig, AutoImageProcessor, TimmWrapperImageProcessor, ViTImageProcessor


onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from macs_hf import exporting  # noqa: E402
from macs_hf.calibration import fit_temperature  # noqa: E402
from macs_hf.cli.export import summary  # noqa: E402
from macs_hf.cli.main import main  # noqa: E402
from macs_hf.exporting import (  # noqa: E402
    ExportReport,
    LogitsOnly,
    OnnxClassifier,
    described_processor,
    divide_logits,
    export_model,
    quantize,
    refitted_temperature,
    sample_photographs,
    temperature_sentence,
    write_onnx,
)


PROCESSOR = ViTImageProcessor(size={"height": SIZE, "width": SIZE}, image_mean=[0.5] * 3, image_std=[0.5] * 3)
TEST, HELD_OUT = Images(60, seed=1), Images(300, seed=2)
IMAGES = Images(24).images.numpy()


def export(name: str, path: Path) -> np.ndarray:
    """Writes a model as ONNX; returns its logits."""
    network = LogitsOnly(build(name))
    write_onnx(network, (SIZE, SIZE), path)
    with torch.inference_mode():
        return network(torch.from_numpy(IMAGES)).numpy()


@pytest.mark.parametrize("name", ["resnet", *(pytest.param(name, marks=pytest.mark.slow) for name in ("vit", "timm"))])
def test_logits_are_those_of_the_model_for_any_batch_and_close_to_them_in_int8(name: str, tmp_path: Path) -> None:
    path, int8 = tmp_path / "model.onnx", tmp_path / "int8.onnx"
    expected = export(name, path)
    classifier = OnnxClassifier(path)
    for size in (1, 2, 24):
        np.testing.assert_allclose(classifier(IMAGES[:size]), expected[:size], atol=1e-5)
    for secret in (b"site-packages", b"macs_hf", str(Path.home()).encode() + b"/"):
        assert secret not in path.read_bytes()
    quantize(path, int8, [IMAGES[:8], IMAGES[8:]])
    logits = OnnxClassifier(int8)(IMAGES)
    assert 0 < (logits - expected).std() < 0.1 * expected.std()
    assert len(np.unique(logits)) > 0.9 * logits.size  # the head is in float32: not 256 values
    kinds = [tensor.data_type for tensor in onnx.load(int8).graph.initializer if len(tensor.dims) > 1]
    assert kinds.count(onnx.TensorProto.INT8) >= 5 and kinds.count(onnx.TensorProto.FLOAT) >= 1


def test_weights_that_are_not_finite_are_named() -> None:
    model = build("resnet")
    with torch.no_grad():
        model.classifier[1].weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"classifier\.1\.weight is not finite"):
        LogitsOnly(model)


def test_an_int8_file_gets_the_temperature_of_the_float32_file(real_logits: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = real_logits
    assert refitted_temperature(logits, logits, labels) == (1.0, None)
    temperature, reason = refitted_temperature(logits, 1.3 * logits, labels)
    assert reason is None and temperature == pytest.approx(1.3, rel=1e-6)
    noisy = logits + np.random.default_rng(0).normal(size=logits.shape)
    temperature, _ = refitted_temperature(logits, noisy, labels)
    assert temperature == pytest.approx(fit_temperature(noisy, labels) / fit_temperature(logits, labels))
    temperature, reason = refitted_temperature(logits[:40], 2 * logits[:40], labels[:40])
    assert temperature == 1.0 and "40" in reason


def test_the_stored_report_loads_and_is_saved_as_it_was(tmp_path: Path) -> None:
    stored = Path(__file__).parents[2] / "model_cards" / "exported"
    ExportReport.load(stored).save(tmp_path)
    assert (tmp_path / "export.json").read_bytes() == (stored / "export.json").read_bytes()


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
    real = exporting.quantize

    def wrong(source: Path, target: Path, images: object) -> None:
        real(source, target, images)
        model = onnx.load(target)
        head = next(node for node in reversed(model.graph.node) if node.op_type == "Gemm")
        for tensor in model.graph.initializer:
            if tensor.name in head.input:
                tensor.CopyFrom(onnx.numpy_helper.from_array(2 * onnx.numpy_helper.to_array(tensor), tensor.name))
        onnx.save(model, target)

    model, data = model_that_knows(), {"test": TEST, "held_out": HELD_OUT}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting, "quantize", wrong)
        export_model(model, PROCESSOR, folder, int8=True, **data, split="test", dataset="tiny")
    return folder


def test_the_files_lie_where_other_libraries_look_for_them(exported: Path) -> None:
    names = sorted(path.relative_to(exported).as_posix() for path in exported.rglob("*") if path.is_file())
    files = ["onnx/model.onnx", "onnx/model_quantized.onnx"]
    assert names == sorted([*files, "README.md", "config.json", "export.json", "preprocessor_config.json"])
    assert AutoConfig.from_pretrained(exported).num_labels == NUM_LABELS
    assert isinstance(AutoImageProcessor.from_pretrained(exported), ViTImageProcessor)
    report, card = ExportReport.load(exported), (exported / "README.md").read_text()
    assert report.files == {name: (exported / name).stat().st_size for name in files}
    assert report.checked == report.same_predictions == len(TEST)
    assert report.largest_difference < 1e-5 * report.largest_logit
    for part in (report.float32, report.int8):
        assert f"| {part.metrics['nll'].value:.3f} [" in card


def test_an_int8_file_that_was_too_sure_gives_calibrated_logits(exported: Path) -> None:
    report = ExportReport.load(exported)
    assert report.int8_temperature == pytest.approx(2, rel=0.05)
    assert report.above_chance and "not above chance" not in summary(report)
    at_chance = report.model_copy(update={"above_chance": False})
    assert "not above chance" in summary(at_chance).splitlines()[0]
    float32, int8 = (OnnxClassifier(exported / name)(TEST.images.numpy()) for name in report.files)
    assert np.abs(int8 - float32).std() < 0.1 * float32.std()
    nll = torch.nn.functional.cross_entropy(torch.from_numpy(int8), TEST.labels).item()
    assert report.int8.metrics["nll"].value == pytest.approx(nll, rel=1e-4)
    change = nll - torch.nn.functional.cross_entropy(torch.from_numpy(float32), TEST.labels).item()
    assert report.differences["nll"].value == pytest.approx(change, abs=1e-5)


def test_an_earlier_export_is_replaced_and_another_folder_is_not(exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    shutil.copytree(exported, folder)
    report = export_model(build("resnet"), PROCESSOR, folder, name="user/again")
    assert report.float32 is report.above_chance is None and report.checked == 16
    assert not (folder / "onnx/model_quantized.onnx").exists()
    assert ExportReport.load(folder).model == "user/again"
    (folder / "export.json").unlink()
    with pytest.raises(ValueError, match="no earlier export"):
        export_model(build("resnet"), PROCESSOR, folder)


def test_what_is_missing_is_named_before_anything_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for data in ({}, {"test": TEST}, {"held_out": HELD_OUT}):
        with pytest.raises(ValueError, match="int8=True needs images"):
            export_model(build("resnet"), PROCESSOR, tmp_path / "out", int8=True, **data)
    monkeypatch.setattr("macs_hf.exporting.find_spec", lambda name: None if "runtime" in name else object())
    with pytest.raises(ImportError, match="pip install onnxruntime"):
        export_model(build("resnet"), PROCESSOR, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_graph_that_disagrees_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = exporting.write_onnx

    def wrong(*args: object) -> None:
        real(*args)
        divide_logits(args[2], 1.5)

    monkeypatch.setattr(exporting, "write_onnx", wrong)
    model = build("resnet")
    with torch.no_grad():
        model.classifier[1].bias += 5
    with pytest.raises(ValueError, match="gives other logits than the model"):
        export_model(model, PROCESSOR, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["center", "squash"])
def test_the_processor_of_timm_is_described_for_others(mode: str) -> None:
    settings = {"input_size": (3, 48, 48), "crop_pct": 0.875, "crop_mode": mode, "interpolation": "bicubic"}
    settings |= {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    own = TimmWrapperImageProcessor(settings, "resnet18")
    expected, found = sample_photographs(own), sample_photographs(described_processor(own))
    levels = 255 * 0.225 * (found - expected).abs()  # of 256
    assert found.shape == (16, 3, 48, 48)
    assert levels.max() < 2.1 and levels.mean() < 0.02  # two libraries round a pixel differently


@pytest.mark.slow
def test_the_command_exports_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    save_digits_model(tmp_path / "model", temperature=1.0)
    argv = ["export", str(tmp_path / "model"), "--output_dir", str(tmp_path / "out"), "--dataset", "digits", "--int8"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    report = ExportReport.load(tmp_path / "out")
    assert (report.model, report.dataset, report.n) == ("model", "digits", 450)
    assert report.int8_temperature == pytest.approx(1, abs=0.1) and temperature_sentence(report) in out
    assert str(tmp_path) not in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(
    ("options", "named"), [(["--int8"], "--int8"), ([], "--output_dir"), (["--split", "test"], "--dataset")]
)
def test_command_refuses_first(options: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "own.txt").write_text("mine")
    folder = tmp_path if not options else tmp_path / "out"
    with pytest.raises(SystemExit) as caught:
        main(["export", "no/such-model", "--output_dir", str(folder), *options])
    assert caught.value.code == 2 and named in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["own.txt"]


def test_signals_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    """While the files are checked, when the first of them is written."""

    def stopped(*args: object, **kwargs: object) -> None:
        assert list(tmp_path.rglob("model.onnx"))
        os.kill(os.getpid(), signal.SIGTERM)

    build("resnet").save_pretrained(tmp_path / "model")
    PROCESSOR.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(exporting, "_agreement", stopped)
    with pytest.raises(SystemExit) as left:
        main(["export", str(tmp_path / "model"), "--output_dir", str(tmp_path / "new")])
    assert left.value.code == 128 + signal.SIGTERM
    assert capfd.readouterr().err.splitlines()[-1].startswith("macs-hf export: Stopped by SIGTERM.")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
