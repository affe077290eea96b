"""Images and their processor: in which space the perturbation acts, and at which size the processor is saved."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.utils import httpx
from tiny import Images, arguments, build, timm_resnet
from transformers import AutoImageProcessor, AutoModelForImageClassification, ViTImageProcessor

from macs_hf import METHODS, MaCSTrainer, Objective, PixelStats
from macs_hf.pixels import preparation


IMAGENET = PixelStats((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@pytest.fixture(autouse=True)
def no_introduction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MaCSTrainer, "introduces_itself", False)


class Prepared(Images):
    """Images of any size, normalised with ImageNet's statistics or not at all."""

    def __init__(self, normalised: bool = True, image_size: int | tuple[int, int] = 32) -> None:
        super().__init__(16)
        shape = image_size if isinstance(image_size, tuple) else (image_size, image_size)
        self.images = torch.rand(16, 3, *shape, generator=torch.Generator().manual_seed(0))
        if normalised:
            self.images = IMAGENET.normalize(self.images)


def processor(size: int = 32) -> ViTImageProcessor:
    wanted = {"height": size, "width": size}
    return ViTImageProcessor(size=wanted, image_mean=list(IMAGENET.mean), image_std=list(IMAGENET.std))


# ---- Where the perturbation acts ----


def made(folder: Path, model: Any, data: Images, **kwargs: Any) -> MaCSTrainer:
    return MaCSTrainer(model, arguments(folder, method="recommended", max_steps=2), train_dataset=data, **kwargs)


def saved_vit(folder: Path) -> Any:
    build("vit").save_pretrained(folder)
    processor().save_pretrained(folder)
    return AutoModelForImageClassification.from_pretrained(folder)


@pytest.mark.parametrize("origin", ["timm config", "beside the weights", "processing_class", "pixel_stats"])
def test_statistics_are_found_and_used(origin: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = {"timm config": timm_resnet, "beside the weights": lambda: saved_vit(tmp_path / "model")}
    given = {"processing_class": {"processing_class": processor()}, "pixel_stats": {"pixel_stats": IMAGENET}}
    # Those that were given are trusted, even if no image fits them.
    data = Prepared(normalised=origin != "pixel_stats")
    run = made(tmp_path, model.get(origin, lambda: build("vit"))(), data, **given.get(origin, {}))
    assert run.pixel_stats == IMAGENET
    run.train()
    assert run.perturbed_in == "pixel" and "noise_std" not in caplog.text
    assert run._objective == Objective(**METHODS["recommended"])


@pytest.mark.parametrize("origin", ["nowhere", "timm config", "processing_class"])
def test_without_them_noise_acts_on_normalised(origin: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = timm_resnet() if origin == "timm config" else build("vit")
    given = {"processing_class": processor()} if origin == "processing_class" else {}
    run = made(tmp_path, model, Prepared(normalised=origin == "nowhere"), **given)
    run.train()
    assert run.perturbed_in == "normalized" and caplog.text.count("noise_std=0.444") == 1
    changed = METHODS["recommended"] | {"perturbation_space": "normalized", "noise_std": 0.1 / 0.225}
    assert run._objective == Objective(**changed)


@pytest.mark.parametrize("normalised", [True, False])
def test_a_resumed_run_goes_on_in_the_space_that_its_checkpoint_records(normalised: bool, tmp_path: Path) -> None:
    def saving() -> MaCSTrainer:
        args = arguments(tmp_path, method="recommended", save_strategy="steps", save_steps=2)
        return MaCSTrainer(timm_resnet(), args, train_dataset=Prepared(normalised))

    saving().train()
    checkpoint = tmp_path / "checkpoint-2"
    record = json.loads((checkpoint / "checkpoint.json").read_text())["run"]
    assert record["perturbed_in"] == ("pixel" if normalised else "normalized")
    resumed = saving()
    # Were it found out anew, this batch would decide otherwise.
    resumed.train_dataset.images = Prepared(not normalised).images
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert resumed.perturbed_in == record["perturbed_in"]


def test_jpeg_needs_statistics_that_fit(tmp_path: Path) -> None:
    args = arguments(tmp_path, perturbation="jpeg")
    with pytest.raises(ValueError, match=r"perturbation='jpeg'.*pixel_stats=PixelStats"):
        MaCSTrainer(build("vit"), args, train_dataset=Prepared())
    with pytest.raises(ValueError, match="pixel_stats=PixelStats"):
        MaCSTrainer(timm_resnet(), args, train_dataset=Prepared(normalised=False)).train()


def test_nothing_is_asked_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(httpx.Client, "send", lambda *_, **__: pytest.fail("a request was sent"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    model = build("vit")
    model.config._name_or_path = "somebody/a-model-that-is-not-here"
    assert made(tmp_path, model, Prepared()).pixel_stats is None


# ---- The processor that is saved ----


def trained(folder: Path, data: Images, evaluated: Images | None = None, **kwargs: Any) -> MaCSTrainer:
    kwargs = {"model": build("resnet"), "processing_class": processor()} | kwargs
    run = MaCSTrainer(args=arguments(folder, max_steps=2), train_dataset=data, eval_dataset=evaluated, **kwargs)
    run.train()
    if evaluated is not None:
        run.evaluate()
    run.save_model()
    return run


def saved_size(folder: Path) -> tuple[int, int]:
    return preparation(AutoImageProcessor.from_pretrained(folder)).size


def test_a_model_is_saved_with_the_size_of_its_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = trained(tmp_path, Prepared(image_size=48))
    assert len(caplog.messages) == 2 and all("48 x 48 pixels" in message for message in caplog.messages)
    assert preparation(AutoImageProcessor.from_pretrained(tmp_path)) == preparation(processor(48))
    assert preparation(run.processing_class).size == (32, 32)  # the user's own stays
    run.train()
    run.save_model()
    assert len(caplog.messages) == 2  # once is enough


def test_what_was_evaluated_decides(tmp_path: Path) -> None:
    """Training at a smaller size than one measures and serves at is an old trick, and no mistake."""
    trained(tmp_path, Prepared(image_size=24), Prepared(image_size=40))
    assert saved_size(tmp_path) == (40, 40)


@pytest.mark.parametrize("given", [True, False])
def test_the_config_of_a_timm_model_holds_the_size(given: bool, tmp_path: Path) -> None:
    MaCSTrainer(model=timm_resnet(), args=arguments(tmp_path / "start")).save_model()
    own = AutoImageProcessor.from_pretrained(tmp_path / "start") if given else None
    trained(tmp_path / "run", Prepared(image_size=48), model=timm_resnet(), processing_class=own)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["pretrained_cfg"]["input_size"] == [3, 48, 48] and saved_size(tmp_path / "run") == (48, 48)


def test_images_as_the_processor_makes_them_say_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    noisy, generator = Prepared(), torch.Generator().manual_seed(0)
    noisy.images += 0.02 * torch.randn(noisy.images.shape, generator=generator)
    noisy.images[0, :, :4, :4] = 3 * torch.randn(3, 4, 4, generator=generator)  # erased
    trained(tmp_path, noisy)
    trained(tmp_path, Images(16), processing_class=None)
    assert caplog.messages == []


def test_another_range_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained(tmp_path, Prepared(normalised=False))
    [message] = caplog.messages
    assert message.startswith("Training images have values from ") and str(IMAGENET.mean) in message
