"""ONNX graphs against the models they are made from."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny import NUM_LABELS, SIZE, Images, build
from torch import nn


onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from macs_hf.exporting.graph import divide_logits, exportable, head_layers, write_onnx  # noqa: E402
from macs_hf.exporting.quantization import quantize  # noqa: E402
from macs_hf.exporting.runtime import OnnxClassifier  # noqa: E402


IMAGES = Images(24).images.numpy()


def export(name: str, path: Path) -> np.ndarray:
    """Writes a model as ONNX; returns its logits."""
    network = exportable(build(name), (SIZE, SIZE))
    write_onnx(network, (SIZE, SIZE), path)
    with torch.inference_mode():
        return network(torch.from_numpy(IMAGES)).numpy()


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    path = tmp_path_factory.mktemp("resnet") / "model.onnx"
    return path, export("resnet", path)


def test_a_resnet_gives_the_same_logits_for_any_batch(resnet: tuple[Path, np.ndarray]) -> None:
    path, expected = resnet
    classifier = OnnxClassifier(path)
    for size in (1, 2, 24):
        np.testing.assert_allclose(classifier(IMAGES[:size]), expected[:size], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit", "swin", "timm"])
def test_other_networks_give_the_same_logits(name: str, tmp_path: Path) -> None:
    expected = export(name, tmp_path / "model.onnx")
    classifier = OnnxClassifier(tmp_path / "model.onnx")
    for size in (1, 24):
        np.testing.assert_allclose(classifier(IMAGES[:size]), expected[:size], atol=1e-5)
    # And their int8 files are close to them, by the spread of the logits.
    heads = quantize(tmp_path / "model.onnx", tmp_path / "int8.onnx", [IMAGES])
    assert len(heads) == 1
    error = OnnxClassifier(tmp_path / "int8.onnx")(IMAGES) - expected
    assert 0 < error.std() < 0.1 * expected.std()


def test_a_file_names_no_folder_of_this_machine(resnet: tuple[Path, np.ndarray]) -> None:
    content = resnet[0].read_bytes()
    for name in (b"site-packages", b"macs_hf", str(Path.home()).encode() + b"/"):
        assert name not in content


def test_a_temperature_divides_the_logits(resnet: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, expected = resnet
    copy = tmp_path / "model.onnx"
    copy.write_bytes(path.read_bytes())
    divide_logits(copy, 1.6)
    np.testing.assert_allclose(OnnxClassifier(copy)(IMAGES), expected / 1.6, atol=1e-5)
    graph = onnx.load(copy).graph
    assert [output.name for output in graph.output] == ["logits"]
    assert graph.node[-1].op_type == "Div" and graph.node[-1].name == "calibration_temperature"


def test_int8_has_integer_weights_and_a_head_in_float32(resnet: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, expected = resnet
    heads = quantize(path, tmp_path / "int8.onnx", [IMAGES[:8], IMAGES[8:]])
    graph = onnx.load(tmp_path / "int8.onnx").graph
    nodes = {node.name: node for node in graph.node}
    assert [nodes[name].op_type for name in heads] == ["Gemm"]
    kinds = {tensor.name: tensor.data_type for tensor in graph.initializer}
    assert [kinds[name] for name in nodes[heads[0]].input if name in kinds] == [onnx.TensorProto.FLOAT] * 2
    assert sum(kind == onnx.TensorProto.INT8 for name, kind in kinds.items() if "weight" in name) >= 5
    logits = OnnxClassifier(tmp_path / "int8.onnx")(IMAGES)
    assert 0 < (logits - expected).std() < 0.1 * expected.std()
    assert len(np.unique(logits)) > 0.9 * logits.size  # not 256 values


def test_the_head_of_a_distilled_model_is_two_layers(tmp_path: Path) -> None:
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["hidden"], name="body"),
        helper.make_node("MatMul", ["hidden", "a"], ["first"], name="class"),
        helper.make_node("MatMul", ["hidden", "b"], ["second"], name="distillation"),
        helper.make_node("Add", ["first", "second"], ["sum"], name="sum"),
        helper.make_node("Div", ["sum", "two"], ["logits"], name="mean"),
    ]
    inputs = [helper.make_tensor_value_info(name, kind, None) for name in ("x", "w", "a", "b", "two")]
    outputs = [helper.make_tensor_value_info("logits", kind, None)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "distilled", inputs, outputs)), tmp_path / "model.onnx")
    assert head_layers(tmp_path / "model.onnx") == ("class", "distillation")


class Features(nn.Module):
    """No classifier: it returns what is left of the images."""

    def __init__(self, output: object) -> None:
        super().__init__()
        self.output = output

    def forward(self, pixel_values: torch.Tensor) -> object:
        return self.output


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (SimpleNamespace(last_hidden_state=torch.zeros(2, 5)), "gives no logits"),
        (torch.zeros(2, 5, 8), r"shape \(2, 5, 8\)"),
        (torch.zeros(2, 1), r"shape \(2, 1\)"),
        (torch.zeros(1, NUM_LABELS), r"shape \(1, 4\)"),
    ],
)
def test_what_is_no_classifier_is_refused(output: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        exportable(Features(output), (SIZE, SIZE))


def test_code_of_a_repository_is_refused() -> None:
    remote = type("Remote", (Features,), {"__module__": "transformers_modules.bob.remote.modeling"})
    with pytest.raises(ValueError, match="came with its repository"):
        exportable(remote(torch.zeros(2, 3)), (SIZE, SIZE))


def test_a_model_larger_than_a_file_can_be_is_refused() -> None:
    model = Features(torch.zeros(2, 3))
    with torch.device("meta"):
        model.weight = nn.Parameter(torch.empty(500_000_000))
    with pytest.raises(ValueError, match=r"2\.0 GB of weights"):
        exportable(model, (SIZE, SIZE))


def test_half_precision_is_exported_in_full_and_the_model_is_left_alone() -> None:
    model = build("resnet").bfloat16().train()
    network = exportable(model, (SIZE, SIZE))
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert model.training and not network.training
