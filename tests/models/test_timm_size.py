"""A timm backbone at another input size: the same weights, and a folder which every loader reads at that size."""

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from small_models import SIZE, TIMM, build, logits_of
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    TimmWrapperConfig,
    TimmWrapperForImageClassification,
    ViTImageProcessor,
    pipeline,
)

from macs_hf.calibration import fold_temperature
from macs_hf.models.loading import load_classifier
from macs_hf.models.timm_layout import changes_for_size, save_in_timm_layout, timm_pretrained_cfg


LABELS, TEMPERATURE = ["ant", "bee", "cow"], 1.7
PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8))
FIXED = {
    "vit_small_patch16_224": {"dynamic_img_size": True},
    "swin_tiny_patch4_window7_224": {"strict_img_size": False},
}


def sized(name: str, folder: Path, image_size: int) -> tuple[TimmWrapperForImageClassification, ViTImageProcessor]:
    """A small one of the paper's backbones from a folder, at another size, with weights that spread the logits."""
    save_in_timm_layout(build(name), folder)
    torch.manual_seed(0)
    return load_classifier(str(folder), LABELS, image_size=image_size)


def check_round_trips(model: TimmWrapperForImageClassification, processor: object, folder: Path, size: int) -> None:
    """Folded and saved in either layout, the model is the same for transformers, timm and `pipeline`."""
    pixels = processor(PICTURE, return_tensors="pt")["pixel_values"]
    assert pixels.shape == (1, 3, size, size)
    before = logits_of(model.eval(), pixels)
    fold_temperature(model, TEMPERATURE)
    logits = logits_of(model, pixels)
    torch.testing.assert_close(logits * TEMPERATURE, before, rtol=1e-5, atol=1e-6)
    save_in_timm_layout(model, folder / "timm", processor.data_config)
    model.save_pretrained(folder / "plain")
    for layout in ("timm", "plain"):
        where = folder / layout
        again = AutoModelForImageClassification.from_pretrained(where).eval()
        bare = timm.create_model(f"local-dir:{where}", pretrained=True).eval()
        torch.testing.assert_close(logits_of(again, pixels), logits, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(logits_of(bare, pixels), logits, rtol=1e-5, atol=1e-6)
        assert again.config.calibration_temperature == TEMPERATURE
        its_processor = AutoImageProcessor.from_pretrained(where)
        assert its_processor.data_config == processor.data_config
        assert torch.equal(its_processor(PICTURE, return_tensors="pt")["pixel_values"], pixels)
        assert tuple(timm.data.resolve_model_data_config(bare)["input_size"]) == (3, size, size)
        assert tuple(timm.data.resolve_model_data_config(bare, use_test_size=True)["input_size"]) == (3, size, size)
    scores = {
        entry["label"]: entry["score"] for entry in pipeline("image-classification", str(folder / "timm"))(PICTURE)
    }
    torch.testing.assert_close(torch.tensor([scores[label] for label in LABELS]), logits.softmax(-1)[0])


@pytest.mark.parametrize("name", TIMM)
def test_the_weights_stay_as_they_are_and_every_loader_reads_the_new_size(name: str, tmp_path: Path) -> None:
    before = build(name).state_dict()
    model, processor = sized(name, tmp_path / "old", 64)
    after, head = model.state_dict(), {"weight", "bias"}
    assert before.keys() == after.keys()
    changed = {key for key in before if not torch.equal(after[key], before[key])}
    assert all(after[key].shape[0] == 3 and key.rpartition(".")[2] in head for key in changed)
    assert model.config.pretrained_cfg["crop_pct"] == processor.data_config["crop_pct"] == 1.0
    check_round_trips(model, processor, tmp_path, 64)


@pytest.mark.parametrize("name", FIXED)
def test_transformers_keep_the_size_they_are_built_for(name: str, tmp_path: Path) -> None:
    model, _ = sized(name, tmp_path, 64)
    assert model.config.model_args.items() >= (TIMM[name] | FIXED[name]).items()
    own, _ = sized(name, tmp_path, SIZE)  # nothing to adapt
    assert not own.config.model_args.keys() & FIXED[name].keys()
    assert own.config.pretrained_cfg["fixed_input_size"]


def test_the_size_can_be_changed_again(tmp_path: Path) -> None:
    for name in ("resnet34", "vit_small_patch16_224"):
        model, processor = sized(name, tmp_path / name, 64)
        save_in_timm_layout(model, tmp_path / "64", processor.data_config)
        kept, its_processor = load_classifier(str(tmp_path / "64"), LABELS)
        assert its_processor.data_config == processor.data_config
        larger, processor = load_classifier(str(tmp_path / "64"), LABELS, image_size=96)
        assert processor.data_config["input_size"] == (3, 96, 96)
        pixels = torch.randn(2, 3, 96, 96, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(logits_of(larger, pixels), logits_of(kept, pixels))


def test_a_flexible_network_made_by_hand_is_saved_at_the_size_it_was_built_for() -> None:
    arguments = TIMM["vit_small_patch16_224"] | {"dynamic_img_size": True}
    model = TimmWrapperForImageClassification(
        TimmWrapperConfig(architecture="vit_small_patch16_224", model_args=arguments, num_labels=3)
    )
    assert timm_pretrained_cfg(model)["input_size"] == [3, SIZE, SIZE]
    assert timm_pretrained_cfg(model, {"input_size": (3, 64, 64)})["input_size"] == [3, 64, 64]


def test_sizes_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for wrong in (0, -32):
        with pytest.raises(ValueError, match=f"image_size={wrong} must be a positive"):
            load_classifier("tiny", LABELS, image_size=wrong)
    with pytest.raises(ValueError, match=r"does not run .*image_size=40 .*multiple of its patch size"):
        sized("vit_small_patch16_224", tmp_path / "vit", 40)
    section = timm.get_pretrained_cfg("mixer_b16_224").to_dict()
    mixer = TimmWrapperConfig(architecture="mixer_b16_224", pretrained_cfg=section)
    with pytest.raises(ValueError, match="image_size=64: timm builds 'mixer_b16_224' for 224 pixels only"):
        changes_for_size(mixer, 64)
