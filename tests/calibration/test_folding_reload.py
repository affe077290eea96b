"""A folded temperature survives saving, for people who do not have this package."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from small_models import MODELS, SIZE, TEMPERATURE, TIMM, build, logits_of
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    TimmWrapperConfig,
    ViTImageProcessor,
)

from macs_hf.calibration import fold_temperature
from macs_hf.models.timm_layout import save_in_timm_layout


@pytest.mark.slow
@pytest.mark.parametrize("name", TIMM)
def test_the_backbones_of_the_paper_at_full_size(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = TimmWrapperConfig(architecture=name, num_labels=100)
    model = AutoModelForImageClassification.from_config(config).eval()
    images = torch.randn(4, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    before = logits_of(model, images)
    fold_temperature(model, TEMPERATURE)
    after = logits_of(model, images)
    torch.testing.assert_close(after, before / TEMPERATURE, rtol=1e-5, atol=1e-6 * before.abs().max().item())
    assert (after.argmax(1) == before.argmax(1)).all()
    save_in_timm_layout(model, tmp_path)
    assert torch.equal(logits_of(timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval(), images), after)
    assert torch.equal(logits_of(AutoModelForImageClassification.from_pretrained(tmp_path).eval(), images), after)


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
