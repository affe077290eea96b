"""CorruptionTable: what a classifier does under each corruption and severity, and the usual means. Only data."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

from .checks import check_count, check_range, check_share
from .corruption_names import CORRUPTIONS, FAMILIES, MEANS, SEVERITIES, STANDARD_15
from .corruption_rows import CorruptionRows
from .interval import Interval
from .serialization import to_plain


Score = Literal["accuracy", "nll", "ece", "scaled_nll", "scaled_ece"]


@dataclass(frozen=True)
class Cell:
    """
    The scores of one corruption at one severity.

    Args:
        n (`int`): Number of images.
        accuracy, nll, ece (`float`): As fractions and nats; the ECE has 15 equal-width, right-closed bins.
        scaled_nll, scaled_ece (`float`, *optional*): With the logits divided by the table's temperature.
        noise_floor, scaled_noise_floor (`float`, *optional*): The ECE that a calibrated model with the same
            confidences would get on so many images.
    """

    n: int
    accuracy: float
    nll: float
    ece: float
    scaled_nll: float | None = None
    scaled_ece: float | None = None
    noise_floor: float | None = None
    scaled_noise_floor: float | None = None

    def __post_init__(self) -> None:
        check_count("n", self.n)
        for name in ("accuracy", "ece", "scaled_ece"):
            check_share(name, getattr(self, name))
        for name in ("nll", "scaled_nll"):
            check_range(name, getattr(self, name), 0)


@dataclass(frozen=True)
class CorruptionTable:
    """
    The scores of one classifier under corruption.

    Args:
        params (`str`): The parameter set, `"cifar"` or `"imagenet"`: part of every key of `summary`.
        source (`str`): `"generated"`, or the published data that were read.
        n (`int`): Number of images; a cell has its own number.
        cells (`dict[str, dict[int, Cell]]`): Scores by corruption and severity.
        clean (`Cell`, *optional*): Scores on the images without corruption.
        when (`str`): `"after_resize"` (at the network's input size) or `"before_resize"` (on the original image).
        seed (`int`, *optional*): Seed of generated corruptions, of the subset of images, and of the spread design.
        design (`str`): `"crossed"`, every image under every corruption, or `"spread"`, every image under one, drawn by
            `seed`.
        frost (`str`, *optional*): Where generated frost took its textures from.
        temperature (`float`, *optional*): The temperature of the scaled scores.
        standard_error (`dict[str, float]`, *optional*): Of the mean accuracies that are complete: `mean15`, `mean19`,
            the families, and `severity_1` to `severity_5` over the standard 15. Over images, as the design has it.
        rows ([`CorruptionRows`], *optional*): Results image by image, with which two tables can be compared; they are
            columns of the file of samples, not part of `to_dict`.
        size (`tuple[int, int]`, *optional*): Height and width of the images as the network got them.
        confidence_gap (`dict[str, Interval]`, *optional*): Mean confidence minus accuracy, above 0 where the model is
            overconfident, with the temperature if there is one: `clean`, and the keys of `standard_error`.
    """

    params: str
    source: str
    n: int
    cells: dict[str, dict[int, Cell]]
    clean: Cell | None = None
    when: str = "after_resize"
    seed: int | None = None
    frost: str | None = None
    temperature: float | None = None
    standard_error: dict[str, float] | None = None
    size: tuple[int, int] | None = None
    design: Literal["crossed", "spread"] = "crossed"
    confidence_gap: dict[str, Interval] | None = None
    rows: CorruptionRows | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_count("n", self.n)
        check_range("temperature", self.temperature, 0)
        for name, row in self.cells.items():
            if name not in CORRUPTIONS:
                raise ValueError(f"cells.{name} is not one of the corruptions {', '.join(CORRUPTIONS)}")
            if unknown := set(row) - set(SEVERITIES):
                raise ValueError(f"cells.{name}.{min(unknown)} is not one of the severities {SEVERITIES}")
            for severity, cell in row.items():
                if self.temperature is not None and None in (cell.scaled_nll, cell.scaled_ece):
                    raise ValueError(f"cells.{name}.{severity} must have scores with temperature {self.temperature}")
            first = next(iter(self.cells))
            if row.keys() != self.cells[first].keys():
                raise ValueError(
                    f"cells.{name} must have the severities of cells.{first}: {sorted(self.cells[first])}"
                )
        for name, value in (self.standard_error or {}).items():
            check_range(f"standard_error.{name}", value, 0)

    def _repr_html_(self) -> str:
        from .notebook import corruptions_shown  # which needs this module

        return corruptions_shown(self)

    def by_corruption(self, score: Score = "accuracy") -> dict[str, float]:
        """The mean over severities, for each corruption."""
        return {name: fmean(getattr(cell, score) for cell in row.values()) for name, row in self.cells.items()}

    def by_severity(self, score: Score = "accuracy", names: Sequence[str] | None = None) -> dict[int, float]:
        """The mean over corruptions (`names`, or all there are), for each severity; 0 is the clean images."""
        rows = [self.cells[name] for name in names or self.cells]
        means = {severity: fmean(getattr(row[severity], score) for row in rows) for severity in rows[0]}
        return means if self.clean is None else {0: getattr(self.clean, score)} | means

    def mean(self, names: Sequence[str], score: Score = "accuracy") -> float | None:
        """The mean over corruptions and severities; `None` unless all of `names` are there, at all five severities."""
        if any(tuple(self.cells.get(name, ())) != SEVERITIES for name in names):
            return None
        rows = self.by_corruption(score)
        return fmean(rows[name] for name in names)

    def interval(self, mean: str = "mean15") -> Interval | None:
        """
        A mean accuracy with the 95 % interval that the number of images implies; `None` if that is not known, or not
        all of the corruptions are there.

        Args:
            mean (`str`, *optional*, defaults to `"mean15"`): A key of `standard_error`.
        """
        if not self.standard_error or mean not in self.standard_error:
            return None
        if not mean.startswith("severity_"):
            value = self.mean((MEANS | FAMILIES)[mean])
        elif self.cells.keys() >= set(STANDARD_15):
            value = self.by_severity(names=STANDARD_15).get(int(mean.removeprefix("severity_")))
        else:
            value = None
        if value is None:
            return None
        half = 1.96 * self.standard_error[mean]
        return Interval(value, max(0.0, value - half), min(1.0, value + half))

    def summary(self) -> dict[str, float]:
        """A flat dictionary for logs, such as `corruption_accuracy/cifar/mean15`; what is incomplete is left out."""
        flat: dict[str, float | None] = {}
        scores = ("accuracy", "nll", "ece") + (("scaled_nll", "scaled_ece") if self.temperature is not None else ())
        for score in scores:
            key = f"corruption_{score}/{self.params}"
            flat |= {f"{key}/{mean}": self.mean(names, score) for mean, names in (MEANS | FAMILIES).items()}
            standard = [name for name in self.cells if name in STANDARD_15] or None
            flat |= {f"{key}/severity_{s}": value for s, value in self.by_severity(score, standard).items() if s}
            flat |= {f"{key}/{name}": value for name, value in self.by_corruption(score).items()}
        for name in MEANS:
            if (interval := self.interval(name)) is not None:
                flat[f"corruption_accuracy/{self.params}/{name}_low"] = interval.low
                flat[f"corruption_accuracy/{self.params}/{name}_high"] = interval.high
        return {name: value for name, value in flat.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with the means beside the cells."""
        return to_plain(self) | {"summary": self.summary()}
