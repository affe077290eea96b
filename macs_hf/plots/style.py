"""How every picture looks: one set of colours, sizes and rules. The colours were checked for three kinds of colour
blindness, and nothing is shown by colour alone."""

import io
import textwrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from PIL import Image


INK, AXIS, TICK, RULE, PALE = "#222222", "#888888", "#444444", "#e5e5e5", "#bbbbbb"
# What a line or a point is about: accuracy, or confidence.
ACCURACY, CONFIDENCE = "#0072b2", "#d55e00"
# The gap between the two, as an area and as a line.
OVERCONFIDENT, UNDERCONFIDENT = "#d9692f", "#f2d16b"
OVERCONFIDENT_LINE, UNDERCONFIDENT_LINE = "#c44e00", "#d9a400"
# Several models in one picture.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES, DOTS = (0, (4, 3)), (0, (1, 1.5))

HEADING, TITLE, LABEL, SMALL, SMALLEST = 10.5, 9.5, 9, 8.5, 7
DPI = 160
CHARACTERS_PER_INCH = 11  # of a heading
PERCENT = "\u202f%"  # a narrow space that does not break, and the sign


class Picture(Figure):
    """A figure of Matplotlib that a notebook shows without `%matplotlib inline`."""

    def _repr_png_(self) -> bytes:
        return png(self)


def picture(width: float, height: float, heading: str = "") -> Picture:
    """An empty picture, in inches, with lines of text above it."""
    figure = Picture(figsize=(width, height), dpi=DPI, layout="constrained", facecolor="white")
    longest = int(CHARACTERS_PER_INCH * width)
    whole = (" ".join(short(word, longest) for word in line.split()) for line in heading.split("\n"))
    if lines := [part for line in whole for part in textwrap.wrap(line, longest)]:
        figure.suptitle("\n".join(lines), fontsize=HEADING, color=INK, parse_math=False)  # names may have dollar signs
    return figure


def png(figure: Figure, dpi: int = DPI) -> bytes:
    """The file of a picture, with 256 colours, which makes it a third as large."""
    drawn, content = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi)
    with Image.open(drawn) as image:
        reduced = image.convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    reduced.save(content, "PNG", optimize=True)
    return content.getvalue()


def tidy(axes: Axes, *, grid: str = "y", percent: str = "xy") -> None:
    """Thin axes at the left and below, a faint grid, and shares as percentages on the axes named in `percent`."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(AXIS)
    axes.grid(axis=grid, color=RULE, linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(colors=TICK, labelsize=SMALL, length=3)
    for name in percent:
        {"x": axes.xaxis, "y": axes.yaxis}[name].set_major_formatter(FuncFormatter(_percent))
    for part in (axes.xaxis.label, axes.yaxis.label):
        part.set(fontsize=LABEL, color=INK)


def _percent(share: float, _: int) -> str:
    return f"{round(100 * share, 6):g}{PERCENT}"  # 2.5 % and 5 %, not 5.0 %


def short(name: str, longest: int) -> str:
    """A name with its middle left out if it is long: names often differ at the end."""
    if len(name) <= longest:
        return name
    start = (longest - 1) // 2
    return f"{name[:start].rstrip()}…{name[start + 1 - longest :].lstrip()}"
