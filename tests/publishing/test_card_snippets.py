"""The snippets of the card run, agree with each other, and make the library's prediction sets."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from small_models import build
from transformers import PreTrainedModel, ViTImageProcessor

from macs_hf.calibration import prediction_sets, store_guarantees
from macs_hf.models.timm_layout import save_in_timm_layout
from macs_hf.publishing.card import model_card
from macs_hf.publishing.card_settings import CardSettings

from .reports import REPORT


def save(name: str, folder: Path) -> PreTrainedModel:
    model = build(name)
    store_guarantees(model.config, REPORT.guarantees)
    processor = ViTImageProcessor(size={"height": 32, "width": 32})
    if name == "resnet34":
        save_in_timm_layout(model, folder, {"input_size": (3, 32, 32), "crop_pct": 1.0})
    else:
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", ["resnet34", "vit"])
def test_snippets_run_and_agree(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(name, tmp_path / "saved")
    pixels = np.random.default_rng(0).integers(0, 256, (48, 48, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.jpg")
    monkeypatch.chdir(tmp_path)
    text = model_card(REPORT, CardSettings("saved", timm=name == "resnet34")).text
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(snippets) == (4 if name == "resnet34" else 3)
    found = []
    for snippet in snippets:
        namespace: dict[str, Any] = {}
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(snippet, namespace)
        assert "class" in printed.getvalue()
        found.append(namespace)
    probabilities = found[1]["probabilities"]
    labels = found[1]["model"].config.id2label
    scores = {answer["label"]: answer["score"] for answer in found[0]["classifier"]("image.jpg")}
    assert scores == pytest.approx({labels[i]: p for i, p in enumerate(probabilities.tolist())}, abs=1e-5)
    if name == "resnet34":
        torch.testing.assert_close(found[2]["probabilities"], probabilities)
    # The set is that of the library, from the threshold in the downloaded config.
    logits = found[-1]["model"](**found[-1]["inputs"]).logits
    assert found[-1]["threshold"] == REPORT.guarantees.prediction_sets[1].threshold
    assert torch.equal(found[-1]["chosen"], prediction_sets(logits, found[-1]["threshold"])[0])
    assert 0 < found[-1]["chosen"].sum() < len(probabilities)
