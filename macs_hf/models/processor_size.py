"""An image processor of transformers at another size."""

from typing import Any

from transformers import TimmWrapperImageProcessor

from ..pixels import preparation


def resized_processor(processor: Any, image_size: int) -> Any:
    """
    A processor that resizes the shorter side to `image_size` pixels and crops nothing more than a square of it.

    Args:
        processor ([`~transformers.BaseImageProcessor`]): Not modified.
        image_size (`int`): Height and width of the input, in pixels.

    Raises:
        `ValueError`: If the processor still gives another size.
    """
    if isinstance(processor, TimmWrapperImageProcessor):
        size = (processor.data_config["input_size"][0], image_size, image_size)
        changes = {"input_size": size, "crop_pct": 1.0}
        return TimmWrapperImageProcessor(processor.data_config | changes, processor.architecture)
    settings = processor.to_dict()
    changes: dict[str, Any] = {"size": {name: image_size for name in settings["size"] if name != "longest_edge"}}
    if settings.get("crop_size"):
        changes["crop_size"] = {"height": image_size, "width": image_size}
    if settings.get("crop_pct"):
        changes["crop_pct"] = 1.0
    resized = type(processor).from_dict(settings | changes)
    if (size := preparation(resized).size) != (image_size, image_size):
        raise ValueError(
            f"image_size={image_size}: {type(processor).__name__} with size {changes['size']} gives images of "
            f"{size or 'varying'} pixels. Leave image_size out."
        )
    return resized
