"""Classifiers get a head for the dataset's labels, keep what they had if it fits, and survive a round trip."""

import json
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from tiny import SIZE, same_weights
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    CLIPImageProcessor,
    ConvNextImageProcessor,
    DeiTImageProcessor,
    PreTrainedModel,
    TimmWrapperConfig,
    TimmWrapperForImageClassification,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
    ViTModel,
)

from macs_hf.calibration import fold_temperature
from macs_hf.models.loading import (
    BACKBONES,
    FROM_SCRATCH,
    load_classifier,
    load_pretrained,
    model_id,
    resized_processor,
)
from macs_hf.models.timm_layout import save_classifier, save_in_timm_layout
from macs_hf.pixels import preparation


OLD, NEW = ["a", "b", "c"], ["cat", "dog", "eel", "fox", "gnu"]
VIT = {
    "image_size": SIZE,
    "patch_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def images(count: int = 2) -> torch.Tensor:
    return torch.randn(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def logits_of(model: torch.nn.Module) -> torch.Tensor:
    output = model.eval()(images())
    return getattr(output, "logits", output)


def saved_vit(folder: Path) -> PreTrainedModel:
    torch.manual_seed(0)
    model = ViTForImageClassification(ViTConfig(**VIT, id2label=dict(enumerate(OLD))))
    model.config.calibration_temperature = 1.7
    model.save_pretrained(folder)
    ViTImageProcessor(size={"height": SIZE, "width": SIZE}).save_pretrained(folder)
    return model


def saved_timm(folder: Path) -> PreTrainedModel:
    torch.manual_seed(0)
    config = TimmWrapperConfig(
        architecture="resnet10t",
        id2label=dict(enumerate(OLD)),
        model_args={"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16)},
    )
    model = TimmWrapperForImageClassification(config)
    with torch.no_grad():
        for parameter in model.parameters():  # timm starts from blocks that add nothing
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.config.calibration_temperature = 1.7
    save_in_timm_layout(model, folder)
    return model


SAVED = {"vit": saved_vit, "timm": saved_timm}
HEADS = {"vit": "classifier", "timm": "timm_model.fc"}


# ---- Names ----


@pytest.mark.parametrize(
    ("name", "hub_id"),
    [
        ("resnet18", "timm/resnet18.a1_in1k"),
        ("convnext_atto.d2_in1k", "timm/convnext_atto.d2_in1k"),
        ("microsoft/resnet-50", "microsoft/resnet-50"),
        ("gpt", "gpt"),
        *BACKBONES.items(),
    ],
)
def test_names_stand_for_hub_ids(name: str, hub_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model_id(name) == hub_id
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir(parents=True)
    assert model_id(name) == name  # a folder of that name is meant


# ---- From scratch ----


@pytest.mark.parametrize(("name", "count"), [("tiny", 79_637), ("small", 60_789), ("medium", 311_845)])
def test_networks_from_scratch(name: str, count: int, tmp_path: Path) -> None:
    """Drawn from the seed, with the labels and a size; they survive a round trip."""
    torch.manual_seed(0)
    model, processor = load_classifier(name, NEW)
    torch.manual_seed(0)
    again, smaller = load_classifier(name, NEW, image_size=16)
    assert same_weights(model, again) and not same_weights(model, load_classifier(name, NEW)[0])
    assert model.config.id2label == dict(enumerate(NEW))
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert preparation(smaller).size == (16, 16) and preparation(processor).size == (FROM_SCRATCH[name],) * 2
    before = logits_of(model)
    fold_temperature(model, 1.7, images())
    torch.testing.assert_close(logits_of(model) * 1.7, before)
    save_classifier(model, processor, tmp_path)
    again, its_processor = load_classifier(str(tmp_path), NEW)
    assert torch.equal(logits_of(again), logits_of(model)) and again.config.calibration_temperature == 1.7
    assert its_processor.to_dict() == processor.to_dict()
    # Another head forgets the temperature of the old one.
    assert "calibration_temperature" not in load_classifier(str(tmp_path), OLD)[0].config.to_dict()


# ---- Local folders ----


@pytest.mark.parametrize("kind", SAVED)
def test_a_folder_with_the_same_labels_is_loaded_whole(kind: str, tmp_path: Path) -> None:
    model = SAVED[kind](tmp_path)
    for again, processor in (load_classifier(str(tmp_path), OLD), load_pretrained(str(tmp_path))):
        torch.testing.assert_close(logits_of(again), logits_of(model))
        assert again.config.id2label == dict(enumerate(OLD))
        assert again.config.calibration_temperature == 1.7
        assert processor(torch.zeros(3, 50, 50), return_tensors="pt")["pixel_values"].shape[:2] == (1, 3)


@pytest.mark.parametrize("kind", SAVED)
def test_a_head_of_another_size_is_replaced_and_its_temperature_forgotten(kind: str, tmp_path: Path) -> None:
    old = SAVED[kind](tmp_path)
    torch.manual_seed(1)
    model, processor = load_classifier(str(tmp_path), NEW)
    assert logits_of(model).shape == (2, 5)
    assert model.config.id2label == dict(enumerate(NEW)) and model.config.label2id["gnu"] == 4
    assert "calibration_temperature" not in model.config.to_dict()
    head = HEADS[kind]
    weights, before = model.state_dict(), old.state_dict()
    assert all(torch.equal(weights[key], before[key]) for key in before if not key.startswith(head))
    assert weights[f"{head}.weight"].std() > 0
    # The fresh head depends on torch's seed.
    torch.manual_seed(1)
    assert same_weights(load_classifier(str(tmp_path), NEW)[0], model)
    assert not same_weights(load_classifier(str(tmp_path), NEW)[0], model)
    # It survives another round trip.
    save_classifier(model, processor, tmp_path / "new")
    again = AutoModelForImageClassification.from_pretrained(tmp_path / "new")
    torch.testing.assert_close(logits_of(again), logits_of(model))
    assert again.config.id2label == dict(enumerate(NEW))
    AutoImageProcessor.from_pretrained(tmp_path / "new")


def test_a_backbone_without_a_head_gets_one(tmp_path: Path) -> None:
    backbone = ViTModel(ViTConfig(**VIT), add_pooling_layer=False)
    backbone.config.calibration_temperature = 3.0
    backbone.save_pretrained(tmp_path)
    ViTImageProcessor().save_pretrained(tmp_path)
    model, _ = load_classifier(str(tmp_path), NEW)
    assert logits_of(model).shape == (2, 5)
    assert not hasattr(model.config, "calibration_temperature")
    assert torch.equal(model.vit.embeddings.cls_token, backbone.embeddings.cls_token)


def test_weights_that_do_not_fit_are_not_drawn_anew(tmp_path: Path) -> None:
    saved_vit(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"image_size": 64}))
    for load in (load_pretrained, lambda name: load_classifier(name, NEW)):
        with pytest.raises(ValueError, match=r"vit\.embeddings\.position"):
            load(str(tmp_path))


# ---- Another input size ----


@pytest.mark.parametrize(
    "kind",
    [
        ViTImageProcessor,
        ConvNextImageProcessor,  # the shortest edge, and a share of it to crop
        CLIPImageProcessor,  # the shortest edge, then a crop
        DeiTImageProcessor,  # 256, then a crop of 224
    ],
)
def test_processors_take_another_size_and_keep_the_rest(kind: type) -> None:
    processor = kind()
    resized = resized_processor(processor, 48)
    before, after = preparation(processor), preparation(resized)
    assert after == before._replace(size=(48, 48))
    # The whole of a square image: nothing is cropped off its border.
    square = np.zeros((96, 96, 3), np.uint8)
    square[:8] = 255
    assert resized(Image.fromarray(square), return_tensors="pt")["pixel_values"][0, 0, 1].min() > 0.5


def test_a_model_of_transformers_is_loaded_and_saved_at_another_size(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, processor = load_classifier("tiny", OLD)
    save_classifier(model, processor, tmp_path / "old")
    again, resized = load_pretrained(str(tmp_path / "old"), image_size=48)
    assert same_weights(model, again)
    save_classifier(again, resized, tmp_path / "new")
    assert preparation(load_pretrained(str(tmp_path / "new"))[1]).size == (48, 48)
    assert preparation(load_pretrained(str(tmp_path / "old"))[1]).size == (32, 32)
    assert {path.suffix for path in (tmp_path / "new").iterdir()} == {".json", ".safetensors"}


def test_a_folder_that_timm_wrote_is_loaded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    backbone = timm.create_model("resnet10t", num_classes=3)
    timm.models.save_for_hf(backbone, tmp_path, safe_serialization=True)
    config = json.loads((tmp_path / "config.json").read_text())
    arguments = {"num_classes": 3, "in_chans": 3, "checkpoint_path": "/dev/null"}  # which is never opened
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_args": arguments}))
    model, _ = load_pretrained(str(tmp_path))
    torch.testing.assert_close(logits_of(model), logits_of(backbone))
    assert load_classifier(str(tmp_path), NEW, image_size=SIZE)[0].config.num_labels == len(NEW)


def test_weights_of_16_bits_are_loaded_in_32(tmp_path: Path) -> None:
    model, processor = load_classifier("tiny", OLD)
    save_classifier(model.to(torch.float16), processor, tmp_path)
    loaded, _ = load_pretrained(str(tmp_path))
    for name, parameter in loaded.named_parameters():
        assert parameter.dtype == torch.float32 and torch.equal(parameter, model.get_parameter(name).float())
