"""A folded temperature divides the logits and changes nothing else, also for people who do not have this package."""

import copy
import json
import subprocess
import sys

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from small_models import CLASSES, MODELS, SIZE, TEMPERATURE, TIMM, build, logits_of
from torch import Tensor, nn
from transformers import AutoImageProcessor, ViTImageProcessor

from macs_hf.calibration import fold_temperature, folded_temperature
from macs_hf.models.timm_layout import save_in_timm_layout


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.randn(16, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_divided_and_predictions_kept(name: str, images: Tensor) -> None:
    model = build(name)
    before, weights = logits_of(model, images), copy.deepcopy(model.state_dict())

    fold_temperature(model, TEMPERATURE, images[:4])

    after = logits_of(model, images)
    torch.testing.assert_close(after, before / TEMPERATURE, rtol=1e-5, atol=1e-6 * before.abs().max().item())
    assert (after.argmax(1) == before.argmax(1)).all()
    assert model.config.calibration_temperature == TEMPERATURE
    changed = {key for key, weight in model.state_dict().items() if not torch.equal(weight, weights[key])}
    assert 1 <= len(changed) <= 4  # weight and bias of one head, or two
    assert all("head" in key or "classifier" in key or "fc" in key for key in changed)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("resnetv2_50", {"layers": [1, 1, 1, 1], "channels": [16, 16, 32, 32]}),  # a 1x1 convolution
        ("convnext_atto", {"depths": [1, 1, 1, 1], "dims": [8, 8, 8, 8], "head_hidden_size": 12}),  # NormMlp
        # Two heads.
        ("deit_tiny_distilled_patch16_224", {"img_size": SIZE, "depth": 1, "embed_dim": 12, "num_heads": 2}),
    ],
)
def test_bare_timm_models(name: str, arguments: dict, images: Tensor) -> None:
    model = timm.create_model(name, num_classes=CLASSES, **arguments).eval()
    nn.init.normal_(list(model.parameters())[-1])
    before = logits_of(model, images)
    fold_temperature(model, TEMPERATURE, images[:2])
    torch.testing.assert_close(logits_of(model, images) * TEMPERATURE, before)
    assert model.calibration_temperature == TEMPERATURE


def test_folding_composes_and_restores(images: Tensor) -> None:
    model = build("deit_distilled")
    before, weights = logits_of(model, images), copy.deepcopy(model.state_dict())
    fold_temperature(model, 2.0)
    fold_temperature(model, 1.5)
    assert folded_temperature(model) == model.config.calibration_temperature == 3.0
    torch.testing.assert_close(logits_of(model, images) * 3.0, before)

    fold_temperature(model, 1 / 3.0)
    assert folded_temperature(model) == 1.0
    for key, weight in model.state_dict().items():
        torch.testing.assert_close(weight, weights[key], rtol=3e-7, atol=0)


def test_modes_random_state_and_gradients_are_left_alone(images: Tensor) -> None:
    model = build("resnet").train()
    model.resnet.embedder.eval()  # a frozen part
    model.classifier[-1].bias.requires_grad_(False)
    modes = [module.training for module in model.modules()]
    statistics = {key: value.clone() for key, value in model.named_buffers()}
    random_state = torch.get_rng_state()
    fold_temperature(model, TEMPERATURE)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, statistics[key]) for key, value in model.named_buffers())
    assert torch.equal(torch.get_rng_state(), random_state)
    assert model.classifier[-1].weight.requires_grad and not model.classifier[-1].bias.requires_grad


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes(dtype: torch.dtype, images: Tensor) -> None:
    model = build("deit_distilled").to(dtype)
    before = logits_of(model, images.to(dtype))
    fold_temperature(model, TEMPERATURE, images[:2])
    off = (logits_of(model, images.to(dtype)) * TEMPERATURE - before).abs().max() / before.abs().max()
    assert off < 4 * torch.finfo(dtype).eps
    assert model.cls_classifier.weight.dtype == dtype


class Head(nn.Module):
    """A classifier of flattened images with something behind its linear layer."""

    def __init__(self, behind: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.linear = nn.Linear(12, 5), nn.Linear(5, 5)
        self.behind = behind or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.behind(self.linear(self.body(x.flatten(1)).tanh()))


SMALL = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("behind", [nn.LayerNorm(5), nn.Tanh(), nn.LogSoftmax(-1)])
def test_a_head_that_is_not_linear_is_refused_and_restored(behind: nn.Module) -> None:
    model = Head(behind)
    nn.init.ones_(model.linear.bias)
    weights = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="`linear` does not scale the logits"):
        fold_temperature(model, 1.0001, SMALL)  # so close to 1 that the logits hardly move
    assert all(torch.equal(weight, weights[key]) for key, weight in model.state_dict().items())
    assert folded_temperature(model) == 1.0


def test_tied_quantised_and_headless_models_are_refused() -> None:
    tied = Head()
    tied.linear.weight = tied.extra = nn.Parameter(torch.randn(5, 5))
    with pytest.raises(ValueError, match="shares weights"):
        fold_temperature(tied, TEMPERATURE, SMALL)
    quantised = Head()
    quantised.linear.weight = nn.Parameter(quantised.linear.weight.to(torch.float8_e4m3fn), requires_grad=False)
    quantised.linear.forward = lambda x: x @ quantised.linear.weight.float().T
    with pytest.raises(ValueError, match="quantised"):
        fold_temperature(quantised, TEMPERATURE, SMALL)
    with pytest.raises(ValueError, match="no such layer"):
        fold_temperature(nn.Sequential(nn.Conv2d(3, 8, 2), nn.Flatten(), nn.MaxPool1d(2)), TEMPERATURE, SMALL)


def test_what_the_check_cannot_use_is_refused() -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        fold_temperature(Head(), 0.0, SMALL)
    with pytest.raises(ValueError, match=r"shape \(4, 3, 5, 5\)"):
        fold_temperature(Head(), TEMPERATURE, torch.zeros(4, 3, 5, 5))
    blank = Head()
    nn.init.zeros_(blank.linear.weight), nn.init.zeros_(blank.linear.bias)
    with pytest.raises(ValueError, match="all zero"):
        fold_temperature(blank, TEMPERATURE, SMALL)


@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], "all-linear"])
def test_a_head_that_an_adapter_does_not_save_is_refused(targets: str | list[str], images: Tensor) -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(build("vit"), peft.LoraConfig(target_modules=targets, init_lora_weights=False)).eval()
    before = logits_of(model, images)
    with pytest.raises(ValueError, match="modules_to_save"):
        fold_temperature(model, TEMPERATURE)
    torch.testing.assert_close(logits_of(model, images), before, rtol=0, atol=0)


# Run where importing this package fails: what a stranger gets from the saved folders.
STRANGER = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "macs_hf":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Block())
try:
    import macs_hf
    raise SystemExit("macs_hf must not be importable here")
except ModuleNotFoundError:
    pass

import json
from pathlib import Path

import timm
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageClassification, pipeline

image, results = Image.open("image.png"), {}
for folder in sorted(path for path in Path().iterdir() if path.is_dir()):
    pixels = AutoImageProcessor.from_pretrained(folder)(image, return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        model = AutoModelForImageClassification.from_pretrained(folder).eval()
        result = {"auto": model(pixels).logits.softmax(-1)[0].tolist(), "T": model.config.calibration_temperature}
        if model.config.model_type == "timm_wrapper":
            model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
            result["timm"] = model(pixels).softmax(-1)[0].tolist()
    classify = pipeline("image-classification", model=str(folder), device="cpu")
    scores = {entry["label"]: entry["score"] for entry in classify(image, top_k=5, function_to_apply="softmax")}
    result["pipeline"] = [scores[label] for label in sorted(scores)]
    results[folder.name] = result
Path("results.json").write_text(json.dumps(results))
"""


@pytest.fixture(scope="module")
def strangers_results(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict]:
    """Probabilities a stranger reads from folded, saved models, and what the unfolded logits divided by T say."""
    root = tmp_path_factory.mktemp("folders")
    pixels = np.random.default_rng(0).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(root / "image.png")
    expected = {}
    for name in MODELS:
        model, folder = build(name), root / name
        if name in TIMM:
            save = save_in_timm_layout
        else:
            ViTImageProcessor(size={"height": SIZE, "width": SIZE}).save_pretrained(folder)
            save = type(model).save_pretrained
        save(model, folder)
        processor = AutoImageProcessor.from_pretrained(folder)
        logits = logits_of(model, processor(Image.fromarray(pixels), return_tensors="pt")["pixel_values"])
        expected[name] = (logits[0].double() / TEMPERATURE).softmax(-1)
        fold_temperature(model, TEMPERATURE)
        save(model, folder)
    subprocess.run([sys.executable, "-c", STRANGER], cwd=root, check=True)
    return json.loads((root / "results.json").read_text()), expected


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_saved_folders_are_calibrated_without_this_package(name: str, strangers_results: tuple[dict, dict]) -> None:
    results, expected = strangers_results
    result = results[name]
    assert result.pop("T") == TEMPERATURE
    assert set(result) == {"auto", "pipeline"} | ({"timm"} if name in TIMM else set())
    for probabilities in result.values():
        torch.testing.assert_close(torch.tensor(probabilities).double(), expected[name], rtol=1e-5, atol=1e-6)
