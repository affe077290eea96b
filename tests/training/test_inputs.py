"""Images of another size or range than the processor makes: reported, and the processor saved as it was trained."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import Images, arguments, build, timm_resnet
from transformers import AutoImageProcessor, ViTImageProcessor

from macs_hf import MaCSTrainer
from macs_hf.pixels import preparation


@pytest.fixture(autouse=True)
def no_introduction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MaCSTrainer, "introduces_itself", False)


class Plain(Images):
    """Images that an [`processor`] of mean and std 0.5 could have made, at any size."""

    def __init__(self, size: int = 16, seed: int = 0, image_size: int | tuple[int, int] = 32) -> None:
        super().__init__(size, seed)
        shape = image_size if isinstance(image_size, tuple) else (image_size, image_size)
        generator = torch.Generator().manual_seed(seed)
        self.images = 2 * torch.rand(size, 3, *shape, generator=generator) - 1


def processor(size: int = 32) -> ViTImageProcessor:
    return ViTImageProcessor(size={"height": size, "width": size}, image_mean=[0.5] * 3, image_std=[0.5] * 3)


def trained(folder: Path, data: Images, evaluated: Images | None = None, **kwargs: Any) -> MaCSTrainer:
    kwargs = {"model": build("resnet"), "processing_class": processor()} | kwargs
    run = MaCSTrainer(args=arguments(folder, max_steps=2), train_dataset=data, eval_dataset=evaluated, **kwargs)
    run.train()
    if evaluated is not None:
        run.evaluate()
    run.save_model()
    return run


def test_a_model_is_saved_with_the_size_that_it_was_trained_with(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = trained(tmp_path, Plain(image_size=48))
    first, second = caplog.messages
    assert first.startswith("Training images have 48 x 48 pixels, but the image processor makes 32 x 32 pixels")
    assert "pass a processing_class of that size" in first
    assert second == "The processor is saved for images of 48 x 48 pixels, in place of 32 x 32 pixels."
    assert preparation(AutoImageProcessor.from_pretrained(tmp_path)) == preparation(processor(48))
    assert preparation(run.processing_class).size == (32, 32)  # the user's own stays
    run.train()
    run.save_model()
    assert len(caplog.messages) == 2  # once is enough


def test_what_was_evaluated_decides(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Training at a smaller size than one measures and serves at is an old trick, and no mistake."""
    trained(tmp_path, Plain(image_size=24), Plain(image_size=32))
    assert (
        len(caplog.messages) == 1
        and "with the size of the images that the model is evaluated with" in caplog.messages[0]
    )
    assert preparation(AutoImageProcessor.from_pretrained(tmp_path)).size == (32, 32)
    run = trained(tmp_path / "other", Plain(image_size=32), Plain(image_size=40))
    assert (run.trained_size, run.evaluated_size) == ((32, 32), (40, 40))
    assert preparation(AutoImageProcessor.from_pretrained(tmp_path / "other")).size == (40, 40)


@pytest.mark.parametrize("given", [True, False])
def test_the_config_of_a_timm_model_holds_the_size(
    given: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = AutoImageProcessor.from_pretrained(saved_timm(tmp_path / "start")) if given else None
    trained(tmp_path / "run", Plain(image_size=48), model=timm_resnet(), processing_class=own)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["pretrained_cfg"]["input_size"] == [3, 48, 48]
    assert preparation(AutoImageProcessor.from_pretrained(tmp_path / "run")).size == (48, 48)
    assert "48 x 48 pixels, but the image processor makes" in caplog.text


def saved_timm(folder: Path) -> Path:
    run = MaCSTrainer(model=timm_resnet(), args=arguments(folder))
    run.save_model()
    return folder


def test_sizes_that_a_processor_cannot_hold(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained(tmp_path, Plain(image_size=(32, 64)))
    assert "The saved processor still makes 32 x 32 pixels, not 32 x 64 pixels: " in caplog.messages[1]
    assert preparation(AutoImageProcessor.from_pretrained(tmp_path)).size == (32, 32)


def test_images_as_the_processor_makes_them_say_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    noisy = Plain()
    noisy.images += 0.02 * torch.randn(noisy.images.shape, generator=torch.Generator().manual_seed(0))
    noisy.images[0, :, :4, :4] = 3 * torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(1))  # erased
    trained(tmp_path, noisy)
    trained(tmp_path, Images(16), processing_class=None)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("scale", "shift", "shown"),
    [(127.5, 127.5, "from 0.0[0-9]* to 255"), (0.5, 0.5, r"from [0-9.e-]+ to 1\b"), (2.2, 0.2, "from -2 to 2.4")],
    ids=["bytes", "not normalised", "other statistics"],
)
def test_another_range_is_reported(
    scale: float, shift: float, shown: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = Plain()
    data.images = scale * data.images + shift
    trained(tmp_path, data)
    [message] = caplog.messages
    assert re.match(f"Training images have values {shown}", message)
    assert "image_mean=(0.5, 0.5, 0.5)" in message and "image_std=(0.5, 0.5, 0.5)" in message
