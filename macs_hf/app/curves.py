"""A curve as SVG, in the colours of the page, light or dark."""

from collections.abc import Sequence

from ..report.markup import percent, text


WIDTH, HEIGHT = 420, 220
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 12, 34


def severity_curve(
    before: Sequence[float], after: Sequence[float], same: Sequence[bool], chosen: int, threshold: float | None
) -> str:
    """
    The confidence in the answer to one image as it gets worse.

    Args:
        before, after (`Sequence[float]`): At severity 0, 1, ..., without and with the temperature.
        same (`Sequence[bool]`): Whether the answer is that at severity 0.
        chosen (`int`): The severity that is shown beside it.
        threshold (`float`, *optional*): The confidence from which on the model answers.
    """
    last = max(1, len(after) - 1)
    places = [_x(severity / last) for severity in range(len(after))]
    ticks = [(place, str(severity)) for severity, place in enumerate(places)]
    levels = [(_y(share), f"{100 * share:.0f} %") for share in (0, 0.5, 1)]
    drawn = ""
    if threshold is not None:
        drawn += _line([(LEFT, _y(threshold)), (WIDTH - RIGHT, _y(threshold))], "threshold")
    if list(before) != list(after):
        drawn += _line([(x, _y(value)) for x, value in zip(places, before, strict=True)], "line faint")
    drawn += _line([(x, _y(value)) for x, value in zip(places, after, strict=True)], "line")
    for severity, (x, value, is_same) in enumerate(zip(places, after, same, strict=True)):
        kind = ("dot" if is_same else "dot other") + (" chosen" if severity == chosen else "")
        drawn += f'<circle class="{kind}" cx="{x:.1f}" cy="{_y(value):.1f}" r="{6 if severity == chosen else 4}"/>'
    alt = "Confidence by severity: " + ", ".join(percent(value) for value in after)
    return _svg(alt, ticks, levels, drawn, "severity (0: the image itself)", "confidence")


def _svg(
    alt: str,
    ticks: Sequence[tuple[float, str]],
    levels: Sequence[tuple[float, str]],
    drawn: str,
    across: str,
    up: str,
) -> str:
    grid = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>' for y, _ in levels
    )
    labels = "".join(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>' for y, label in levels)
    base = HEIGHT - BOTTOM + 15
    labels += "".join(f'<text x="{x:.1f}" y="{base}" text-anchor="middle">{label}</text>' for x, label in ticks)
    labels += f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 4}" text-anchor="middle">{across}</text>'
    return (
        f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{text(alt)}"><title>{up}, '
        f"by {across}</title>{grid}{drawn}{labels}</svg>"
    )


def _line(points: Sequence[tuple[float, float]], kind: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{kind}" points="{path}"/>'


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
