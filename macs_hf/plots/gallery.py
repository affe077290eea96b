"""Images side by side, each with a few words below it."""

from collections.abc import Sequence

from PIL import Image

from .style import INK, SMALLEST, Picture, picture


IN_A_ROW = 6
LARGEST = 256  # pixels of the longer side


def plot_gallery(images: Sequence[Image.Image], captions: Sequence[str], title: str = "") -> Picture:
    """
    A gallery, six images a row.

    Args:
        images (sequence of `PIL.Image.Image`): What to show; large ones are made smaller.
        captions (sequence of `str`): What to write below each, in lines.
        title (`str`, *optional*): Above all.
    """
    if not images:
        raise ValueError("plot_gallery needs at least one image.")
    columns = min(len(images), IN_A_ROW)
    rows = -(-len(images) // columns)
    lines = 1 + max(caption.count("\n") for caption in captions)
    figure = picture(max(4.0, 1.75 * columns + 0.2), (1.65 + 0.14 * lines) * rows + 0.5, title)
    grid = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    for axes, image, caption in zip(grid, images, captions, strict=False):
        shown = image.copy()
        shown.thumbnail((LARGEST, LARGEST))
        axes.imshow(shown, interpolation="nearest")
        axes.set_xlabel(caption, fontsize=SMALLEST, color=INK, linespacing=1.3, parse_math=False)
    for axes in grid:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
    return figure
