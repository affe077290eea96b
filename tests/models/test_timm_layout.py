"""A folder in timm's layout loads in timm and in transformers, to the same model."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    TimmWrapperConfig,
    TimmWrapperForImageClassification,
)

from macs_hf.models.loading import load_pretrained
from macs_hf.models.timm_layout import save_in_timm_layout, timm_pretrained_cfg


TINY = {"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8]}
CIFAR = {"input_size": (3, 32, 32), "mean": (0.49, 0.48, 0.45), "std": (0.25, 0.24, 0.26), "crop_pct": 1.0}


def build(
    architecture: str = "resnet18", model_args: dict | None = None, **kwargs
) -> TimmWrapperForImageClassification:
    torch.manual_seed(0)
    config = TimmWrapperConfig(architecture=architecture, model_args=model_args, **{"num_labels": 3} | kwargs)
    return TimmWrapperForImageClassification(config).eval()


def images(size: Sequence[int] = (3, 64, 64)) -> Tensor:
    return torch.randn(2, *size, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def check_every_loader(folder: Path, logits: Tensor, size: Sequence[int] = (3, 64, 64)) -> None:
    """The model that timm and transformers load gives these logits."""
    plain = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    wrapped = AutoModelForImageClassification.from_pretrained(folder).eval()
    assert torch.equal(plain(images(size)), logits) and torch.equal(wrapped(images(size)).logits, logits)


@pytest.mark.parametrize(
    ("architecture", "model_args", "size"),
    [
        ("resnet18", TINY, [3, 64, 64]),
        ("resnet18.a1_in1k", TINY, [3, 64, 64]),  # the tag of some weights, as people copy it from the Hub
        ("resnet18", TINY | {"in_chans": 1}, [1, 64, 64]),
        ("resnet18", TINY | {"in_chans": 4}, [4, 64, 64]),  # timm would give it a random first convolution
        ("vit_tiny_patch16_224", {"img_size": 32, "depth": 1, "embed_dim": 12, "num_heads": 2}, [3, 32, 32]),
        ("vit_tiny_patch16_224", {"img_size": [32, 48], "depth": 1, "embed_dim": 12, "num_heads": 2}, [3, 32, 48]),
    ],
)
def test_every_loader_gives_the_same_logits(
    architecture: str, model_args: dict, size: list[int], tmp_path: Path
) -> None:
    model = build(architecture, model_args)
    save_in_timm_layout(model, tmp_path)
    check_every_loader(tmp_path, model(images(size)).logits, size)
    processor = AutoImageProcessor.from_pretrained(tmp_path)
    assert processor.data_config["input_size"][0] == len(processor.data_config["mean"]) == size[0]
    if "img_size" in model_args:
        assert list(processor.data_config["input_size"]) == size


def test_a_checkpoint_saved_the_plain_way_is_mended(tmp_path: Path) -> None:
    model = build()
    model.save_pretrained(tmp_path / "plain")
    save_in_timm_layout(AutoModelForImageClassification.from_pretrained(tmp_path / "plain"), tmp_path / "mended")
    check_every_loader(tmp_path / "mended", model(images()).logits)


def test_a_folder_written_by_timm_comes_back_as_it_was(tmp_path: Path) -> None:
    torch.manual_seed(0)
    plain = timm.create_model("resnet18", num_classes=3, **TINY).eval()
    names = {"label_names": ["a", "b", "c"]}
    timm.models.save_for_hf(plain, tmp_path / "timm", model_config=names, model_args=TINY, safe_serialization=True)
    model, _ = load_pretrained(str(tmp_path / "timm"))
    save_in_timm_layout(model.eval(), tmp_path / "again")
    check_every_loader(tmp_path / "again", plain(images()))
    before, after = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("timm", "again"))
    assert after["label_names"] == before["label_names"]
    data = ("input_size", "mean", "std", "interpolation", "crop_pct", "crop_mode", "classifier", "first_conv")
    assert {key: after["pretrained_cfg"][key] for key in data} == {key: before["pretrained_cfg"][key] for key in data}


def test_transformers_takes_no_number_of_classes_among_the_arguments() -> None:
    """timm writes one since 1.0.31: if this fails, transformers has learned to, and `models.loading` need not."""
    with pytest.raises(TypeError, match="num_classes"):
        build(model_args={"num_classes": 3})


def test_weights_of_origin_leave_no_trace(tmp_path: Path) -> None:
    model = build()
    model.config.pretrained_cfg = dict(
        model.timm_model.pretrained_cfg, label_offset=1, custom_load=True, hf_hub_filename="other.bin", unknown=1
    )
    section = timm_pretrained_cfg(model)
    assert not {"label_offset", "custom_load", "tag", "url", "hf_hub_id", "hf_hub_filename", "unknown"} & set(section)
    save_in_timm_layout(model, tmp_path)
    check_every_loader(tmp_path, model(images()).logits)


def test_new_classes_replace_the_label_names_of_the_old_checkpoint(tmp_path: Path) -> None:
    save_in_timm_layout(build(id2label={0: "cat", 1: "dog", 2: "cow"}), tmp_path / "old")
    labels = {1: "bus", 0: "car"}  # not in order
    model = AutoModelForImageClassification.from_pretrained(
        tmp_path / "old", num_labels=2, id2label=labels, ignore_mismatched_sizes=True
    )
    save_in_timm_layout(model, tmp_path / "new")
    reloaded = AutoModelForImageClassification.from_pretrained(tmp_path / "new")
    assert reloaded.config.id2label == labels
    assert reloaded.config.label2id == {"bus": 1, "car": 0}
    assert timm.create_model(f"local-dir:{tmp_path / 'new'}").pretrained_cfg["label_names"] == ["car", "bus"]


def test_the_preprocessing_of_training_is_kept(tmp_path: Path) -> None:
    model = build()
    save_in_timm_layout(model, tmp_path, data_config=CIFAR)
    processor = AutoImageProcessor.from_pretrained(tmp_path)
    assert processor.data_config.items() >= CIFAR.items()
    resolved = timm.data.resolve_model_data_config(timm.create_model(f"local-dir:{tmp_path}"))
    assert {k: tuple(v) if isinstance(v, list) else v for k, v in resolved.items()} == processor.data_config
    # What a processor says is what a processor reads.
    save_in_timm_layout(model, tmp_path / "again", data_config=processor.data_config)
    assert AutoImageProcessor.from_pretrained(tmp_path / "again").data_config == processor.data_config


def test_extra_keys_survive_and_nothing_is_modified(tmp_path: Path) -> None:
    model = build()
    model.config.calibration_temperature = 1.25
    before = model.config.to_dict()
    save_in_timm_layout(model, tmp_path)
    changed = {key for key, value in model.config.to_dict().items() if before.get(key) != value}
    assert changed <= {"architectures", "dtype"}  # which `save_pretrained` itself fills in
    assert AutoModelForImageClassification.from_pretrained(tmp_path).config.calibration_temperature == 1.25


def test_a_given_state_dict_is_what_is_saved(tmp_path: Path) -> None:
    model = build()
    weights = {key: value + 1 for key, value in model.state_dict().items()}
    save_in_timm_layout(model, tmp_path, state_dict=weights)
    saved = load_file(tmp_path / "model.safetensors")
    assert saved.keys() == model.timm_model.state_dict().keys()
    assert all(torch.equal(saved[key], weights[f"timm_model.{key}"]) for key in saved)
