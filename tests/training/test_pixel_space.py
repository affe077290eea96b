"""Where the perturbation acts: on pixels, if how images were normalised can be found and fits them."""

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.utils import httpx
from tiny import Images, arguments, build, timm_resnet
from transformers import AutoModelForImageClassification, ViTImageProcessor

from macs_hf import METHODS, MaCSTrainer, Objective, PixelStats


IMAGENET = PixelStats((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class Prepared(Images):
    """Pixels in [0, 1], normalised with ImageNet's statistics or not at all."""

    def __init__(self, normalised: bool = True, size: int = 32) -> None:
        super().__init__(size)
        self.images = self.images.sigmoid()
        if normalised:
            self.images = IMAGENET.normalize(self.images)


def made(folder: Path, model: Any, data: Images, **kwargs: Any) -> MaCSTrainer:
    return MaCSTrainer(model, arguments(folder, method="recommended", max_steps=2), train_dataset=data, **kwargs)


def processor() -> ViTImageProcessor:
    size = {"height": 32, "width": 32}
    return ViTImageProcessor(size=size, image_mean=list(IMAGENET.mean), image_std=list(IMAGENET.std))


def saved_vit(folder: Path) -> Any:
    build("vit").save_pretrained(folder)
    processor().save_pretrained(folder)
    return AutoModelForImageClassification.from_pretrained(folder)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if "noise_std=0.444" in message]


@pytest.mark.parametrize("origin", ["timm config", "beside the weights", "processing_class", "pixel_stats"])
def test_statistics_are_found_and_used(origin: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = {"timm config": timm_resnet, "beside the weights": lambda: saved_vit(tmp_path / "model")}
    given = {"processing_class": {"processing_class": processor()}, "pixel_stats": {"pixel_stats": IMAGENET}}
    run = made(tmp_path, model.get(origin, lambda: build("vit"))(), Prepared(), **given.get(origin, {}))
    assert run.pixel_stats == IMAGENET
    run.train()
    assert run.perturbed_in == "pixel" and warnings_of(caplog) == []
    assert run._objective == Objective(**METHODS["recommended"])


@pytest.mark.parametrize("origin", ["nowhere", "timm config", "processing_class"])
def test_where_they_are_not_known_or_do_not_fit_noise_acts_on_normalised_images(
    origin: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = timm_resnet() if origin == "timm config" else build("vit")
    given = {"processing_class": processor()} if origin == "processing_class" else {}
    run = made(tmp_path, model, Prepared(normalised=origin == "nowhere"), **given)
    run.train()
    assert run.perturbed_in == "normalized" and len(warnings_of(caplog)) == 1
    changed = METHODS["recommended"] | {"perturbation_space": "normalized", "noise_std": 0.1 / 0.225}
    assert run._objective == Objective(**changed)


def test_statistics_that_were_given_are_trusted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = made(tmp_path, build("vit"), Prepared(normalised=False), pixel_stats=IMAGENET)
    run.train()
    assert run.perturbed_in == "pixel" and warnings_of(caplog) == []


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


def test_jpeg_of_images_that_do_not_fit_is_refused(tmp_path: Path) -> None:
    args = arguments(tmp_path, perturbation="jpeg")
    run = MaCSTrainer(timm_resnet(), args, train_dataset=Prepared(normalised=False))
    with pytest.raises(ValueError, match="pixel_stats=PixelStats"):
        run.train()


def test_nothing_is_asked_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(httpx.Client, "send", lambda *_, **__: pytest.fail("a request was sent"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    model = build("vit")
    model.config._name_or_path = "somebody/a-model-that-is-not-here"
    assert made(tmp_path, model, Prepared()).pixel_stats is None
