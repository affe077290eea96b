"""The images that a network is given, against those that its image processor makes: a saved model is used with the
processor, so its accuracy and its temperature hold only if both agree."""

from typing import Any

from accelerate import PartialState
from torch import Tensor, nn
from transformers import TimmWrapperForImageClassification, TimmWrapperImageProcessor
from transformers.utils import logging

from ..models.processor_size import resized_processor
from ..models.timm_layout import timm_pretrained_cfg
from ..pixels import Preparation, preparation


logger = logging.get_logger(__name__)

# Values a little beyond the processor's range, as noise adds them, and a few far beyond it, as random erasing does.
SLACK, TOLERATED_SHARE = 0.05, 0.01

Size = tuple[int, int]


class Inputs:
    """
    The height and width of the images that a trainer's model has seen.

    Args:
        trained (`tuple[int, int]`, *optional*): Of the last training batch.
        evaluated (`tuple[int, int]`, *optional*): Of the last batch that was evaluated or predicted.
    """

    def __init__(self) -> None:
        self.trained: Size | None = None
        self.evaluated: Size | None = None
        self._warned_of: Size | None = None

    def see(self, images: Tensor, model: nn.Module, processor: Any) -> None:
        """Note the size of a batch, and compare the first training batch with what the processor makes."""
        size = tuple(images.shape[-2:])
        if not model.training:
            self.evaluated = size
            return
        if self.trained is None and (made := _prepared(_processor_of(model, processor))) is not None:
            _warn_of_size(size, made)
            _warn_of_range(images, made)
        self.trained = size

    def processor_to_save(self, model: nn.Module, processor: Any) -> Any:
        """The processor at the size that the model was evaluated with, or trained with if it was not evaluated."""
        size, used = self.evaluated or self.trained, _processor_of(model, processor)
        made = None if size is None else _prepared(used)
        if made is None or made.size in (None, size):
            return processor
        try:
            if size[0] != size[1]:
                raise ValueError(f"{type(used).__name__} can be resized to squares only.")
            processor = resized_processor(used, size[0])
            message = f"The processor is saved for images of {_pixels(size)}, in place of {_pixels(made.size)}."
        except ValueError as error:
            message = f"The saved processor still makes {_pixels(made.size)}, not {_pixels(size)}: {error}"
        if self._warned_of != size:  # once, not at each checkpoint
            _warn(message)
        self._warned_of = size
        return processor


def _processor_of(model: nn.Module, processor: Any) -> Any:
    """The processor that is saved with the model; the config of a timm model describes one."""
    model = getattr(model, "module", model)  # in several processes, the model is wrapped
    if processor is None and isinstance(model, TimmWrapperForImageClassification):
        return TimmWrapperImageProcessor(timm_pretrained_cfg(model), model.config.architecture)
    return processor


def _prepared(processor: Any) -> Preparation | None:
    """What the processor does; `None` if there is none, or one that does not make scaled RGB."""
    try:
        return None if processor is None else preparation(processor)
    except ValueError:
        return None


def _warn_of_size(size: Size, made: Preparation) -> None:
    if made.size not in (None, size):
        _warn(
            f"Training images have {_pixels(size)}, but the image processor makes {_pixels(made.size)}, at which the "
            "model would be used. The processor is saved with the size of the images that the model is evaluated "
            "with, or else trained with; to choose it yourself, pass a processing_class of that size."
        )


def _warn_of_range(images: Tensor, made: Preparation) -> None:
    """Warn of values outside the range that the processor makes of pixels, and of images that were not normalised."""
    if not images.is_floating_point() or images.ndim != 4 or images.shape[1] != len(made.mean):
        return
    mean, std = (images.new_tensor(part).float().view(-1, 1, 1) for part in (made.mean, made.std))
    pixels = images.detach().float() * std + mean  # in [0, 1] if they were prepared alike
    outside = ((pixels < -SLACK) | (pixels > 1 + SLACK)).float().mean().item()
    low, high = images.min().item(), images.max().item()
    ends = [((end - m) / s) for end in (0, 1) for m, s in zip(made.mean, made.std, strict=True)]
    if outside > TOLERATED_SHARE or (low >= 0 and high <= 1 and min(ends) < -0.5):
        _warn(
            f"Training images have values from {low:.3g} to {high:.3g}, but the image processor makes values from "
            f"{min(ends):.3g} to {max(ends):.3g}, with which the model would be used. Normalise training images as it "
            "does, with its image_mean and image_std, or pass the processing_class that they were prepared with."
        )


def _warn(message: str) -> None:
    if PartialState().is_main_process:  # the others see images of the same kind
        logger.warning(message)


def _pixels(size: Size) -> str:
    return f"{size[0]} x {size[1]} pixels"
