"""Paired comparison of two models, or of two recipes with several seeds each, from per-sample rows.

Differences of means over images (accuracy, NLL, Brier score) come first, with their equations; then all metrics of
[`compare`], then its table. ECE and AURC are no means: what each image adds to them is the estimate of the jackknife,
leaving out one image at a time. The coverage at a risk, which jumps, takes the bootstrap.

A plug-in ECE is too large on average, since noise adds to the gap of each bin; most where there is no gap, so a
difference to a calibrated model looks too small. See [`noise_inflation`] for how much.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from ..report.rows import SampleRows
from ..report.sections import METRICS, Table
from ..report.text import table_html, table_lines
from .ece import bin_index, bin_sums, bin_terms, calibration_error, folded_mean
from .scores import check_settings
from .selective import RISKS, aurc_without_each, resampled_coverages


# ---- Differences of means ----
# The difference between two sides of one or several runs each, over test images and seeds together.
#
# With the metric of run s of side a written `m[s]`, S runs on that side, and C the covariance of all these metrics
# over the draw of test images (all runs see the same images, so most of what makes an image hard cancels):
#
#     v_seed        = var(m of a) / S_a + var(m of b) / S_b,  with the degrees of freedom f of Welch and Satterthwaite
#     v_image       = w' C w,                                 with w = 1 / S_a for runs of a and -1 / S_b for runs of b
#     v_interaction = the part of v_image that differs from seed to seed; v_seed holds it already
#     half-width^2  = t(f)^2 v_seed + z^2 max(v_image - v_interaction, 0)
#
# Runs are not paired unless `same_seeds` says so: then v_seed and v_interaction are those of the differences of pairs,
# with S - 1 degrees of freedom. A side with a single run takes the spread of the other side; with one run on each side
# the interval covers test images only.


Verdict = Literal["better", "worse", "undecided", "equal"]
Covers = Literal["images", "images and seeds"]


class Comparison(NamedTuple):
    """
    One metric of two sides on the same samples.

    Args:
        a, b (`float`): The metric of each side, the mean over its runs.
        difference, low, high (`float`): `a - b` and its interval.
        verdict (`str`): `"better"` or `"worse"` says how `a` is, if the interval excludes 0; else `"undecided"`, and
            `"equal"` if both sides have the same runs, as far as this metric of every image tells.
        covers (`str`): What the interval accounts for: `"images"` with one run on each side (another training run may
            give another answer), else `"images and seeds"`.
    """

    a: float
    b: float
    difference: float
    low: float
    high: float
    verdict: Verdict
    covers: Covers = "images"


def paired_difference(
    a: Any,
    b: Any,
    *,
    weights: Any = None,
    same_seeds: bool = False,
    level: float = 0.95,
    higher_is_better: bool = True,
) -> Comparison:
    """
    The difference in a mean over images, such as accuracy or NLL, between two sides of one or several runs each.

    Args:
        a, b (array of shape `(seeds, images)` or `(seeds, images, columns)`): What each run scored on each image;
            sides may have different numbers of seeds. With columns (such as corruptions), the metric of a run is the
            mean over columns of the mean over the images of the column. NaN marks what was not measured; it must be
            the same for all runs.
        weights (array of shape `(columns,)`, *optional*): Weights of the columns that replace the plain mean over
            them. They are scaled to sum to 1.
        same_seeds (`bool`, *optional*, defaults to `False`): Whether run i of `a` and run i of `b` share what the seed
            decides (training images, initial weights). Their difference then counts, which is much narrower where good
            seeds are good for both.
        level (`float`, *optional*, defaults to `0.95`): Probability that the interval is meant to cover.
        higher_is_better (`bool`, *optional*, defaults to `True`): Which sign of the difference is `"better"`.

    Example:

    ```python
    >>> found = paired_difference([[1, 1, 1, 1], [1, 1, 0, 1]], [[0, 0, 1, 0], [0, 1, 0, 0]])
    >>> found.difference, found.verdict, found.covers
    (0.625, 'undecided', 'images and seeds')

    ```
    """
    a, b = (np.asarray(side, dtype=np.float64) for side in (a, b))
    if a.ndim not in (2, 3) or a.shape[1:] != b.shape[1:] or 0 in (*a.shape, *b.shape):
        raise ValueError(
            f"a and b must have the shape (seeds, images) or (seeds, images, columns) with the same images, "
            f"got {a.shape} and {b.shape}"
        )
    values, covariance = _means(np.concatenate([a, b]), weights)
    options = {"same_seeds": same_seeds, "level": level, "higher_is_better": higher_is_better}
    return difference_of_runs(*np.split(values, [len(a)]), covariance, **options)


def _means(runs: np.ndarray, weights: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """The metric of each run from `(runs, images)` or `(runs, images, columns)`, and their covariance over images."""
    runs = np.asarray(runs, dtype=np.float64)
    runs = runs[..., None] if runs.ndim == 2 else runs
    columns = runs.shape[2]
    weights = np.ones(columns) if weights is None else np.asarray(weights, dtype=np.float64)
    if weights.shape != (columns,) or not (weights >= 0).all() or not weights.sum() > 0:
        raise ValueError(f"weights must be {columns} numbers of at least 0, one per column, got {weights}")
    runs, weights = runs[..., weights > 0], weights[weights > 0] / weights.sum()
    missing = np.isnan(runs)
    if (missing != missing[0]).any():
        raise ValueError("the runs were not measured on the same images: NaN must be in the same places in all runs")
    count = (~missing[0]).sum(axis=0)
    if count.min() < 2:
        raise ValueError(f"a comparison needs at least two images in each column, got {count.min()}")
    means = np.nansum(runs, axis=1) / count
    # What each image adds to the deviation of a run's metric.
    influence = np.where(missing, 0.0, runs - means[:, None]) / np.sqrt(count * (count - 1)) @ weights
    return means @ weights, influence @ influence.T


def difference_of_runs(
    a: Sequence[float],
    b: Sequence[float],
    image_covariance: np.ndarray,
    *,
    bias: tuple[float, float] = (0.0, 0.0),
    same_seeds: bool = False,
    level: float = 0.95,
    higher_is_better: bool = True,
) -> Comparison:
    """
    The comparison of the metrics of the runs of two sides.

    Args:
        a, b (sequence of `float`): The metric of each run.
        image_covariance (`np.ndarray` of shape `(runs, runs)`): Covariance of these metrics over the draw of test
            images, first the runs of `a`, then those of `b`. If only the standard error of each side is known, a block
            filled with its square for each side, and 0 elsewhere, takes the sides as unrelated. Zeros leave the
            interval of the seeds.
        bias (`tuple[float, float]`, *optional*, defaults to `(0.0, 0.0)`): By how much `a - b` is too large on
            average, at least and at most. The interval is that of the true difference, and is widened if need be to
            hold `a - b`.
        same_seeds, level, higher_is_better: See [`paired_difference`].
    """
    check_settings(level=level)
    a, b, image_covariance = (np.asarray(part, dtype=np.float64) for part in (a, b, image_covariance))
    if image_covariance.shape != (len(a) + len(b),) * 2:
        raise ValueError(f"image_covariance must be {(len(a) + len(b),) * 2}, got {image_covariance.shape}")
    value = float(a.mean() - b.mean())
    half = _half_width(a, b, image_covariance, same_seeds, level)
    low, high = min(value - bias[1] - half, value), max(value - bias[0] + half, value)
    if _same_runs(a, b, image_covariance):
        value, low, high, verdict = 0.0, 0.0, 0.0, "equal"
    elif low > 0 or high < 0:
        verdict = "better" if (value > 0) == higher_is_better else "worse"
    else:
        verdict = "undecided"
    covers = "images" if len(a) == len(b) == 1 else "images and seeds"
    return Comparison(float(a.mean()), float(b.mean()), value, low, high, verdict, covers)


def _same_runs(a: np.ndarray, b: np.ndarray, image_covariance: np.ndarray) -> bool:
    """Whether the runs of `b` are those of `a`, in any order: the same values, and no image that tells them apart."""
    values, variance = np.concatenate([a, b]), image_covariance.diagonal()
    if not variance.any():  # nothing is known of the images
        return bool((values == values[0]).all())
    of_differences = variance[:, None] + variance - 2 * image_covariance
    same = (values[:, None] == values) & (of_differences <= 1e-12 * variance.sum())  # below is rounding
    return bool((same[: len(a)].mean(axis=0) == same[len(a) :].mean(axis=0)).all())


def _half_width(a: np.ndarray, b: np.ndarray, image_covariance: np.ndarray, same_seeds: bool, level: float) -> float:
    """Half of the interval of the difference between the means of `a` and `b`; see the equations above."""
    weights = np.concatenate([np.full(len(a), 1 / len(a)), np.full(len(b), -1 / len(b))])
    images = weights @ image_covariance @ weights
    images = images if images > 1e-12 * np.trace(image_covariance) else 0.0  # below is rounding
    upper = (1 + level) / 2
    if len(a) == len(b) == 1:
        return float(ndtri(upper) * np.sqrt(images))
    spread, shared, freedom = (_paired if same_seeds else _unpaired)(a, b, image_covariance)
    if spread == 0:  # all runs of a side scored the same by chance
        return float(ndtri(upper) * np.sqrt(max(images, shared)))
    images = max(images - shared, 0.0)
    return float(np.sqrt(stdtrit(freedom, upper) ** 2 * spread + ndtri(upper) ** 2 * images))


def _paired(a: np.ndarray, b: np.ndarray, image_covariance: np.ndarray) -> tuple[float, float, float]:
    """Variance of the difference over seeds, the interaction in it, degrees of freedom; run i has the seed i."""
    n = len(a)
    if n != len(b):
        raise ValueError(f"same_seeds=True needs as many runs of a as of b, in the same order, got {n} and {len(b)}")
    differences = np.concatenate([np.eye(n), -np.eye(n)], axis=1)
    variance, interaction = _between_seeds(a - b, differences @ image_covariance @ differences.T)
    return variance / n, interaction / n, n - 1


def _unpaired(a: np.ndarray, b: np.ndarray, image_covariance: np.ndarray) -> tuple[float, float, float]:
    """The same of runs that have nothing in common but the images."""
    split, runs = len(a), np.array([len(a), len(b)])
    blocks = (image_covariance[:split, :split], image_covariance[split:, split:])
    sides = np.array([_between_seeds(*side) for side in zip((a, b), blocks, strict=True)])
    freedoms = runs - 1
    pooled = (freedoms[:, None] * sides).sum(axis=0) / freedoms.sum()
    sides[freedoms == 0] = pooled  # a side with one run borrows the spread of the other
    spread, shared = (sides / runs[:, None]).sum(axis=0)
    freedom = freedoms.sum()
    if freedoms.all() and spread > 0:
        # Two runs say little about which side spreads more: half-way to the pooled variance, the degrees of freedom
        # vary less, and the simulated coverage of 2 against 2 runs is 96 to 98 % in place of 98 to 99 %.
        shares = (sides[:, 0] + pooled[0]) / runs / 2
        freedom = shares.sum() ** 2 / (shares**2 / freedoms).sum()
    return spread, shared, freedom


def _between_seeds(values: np.ndarray, image_covariance: np.ndarray) -> tuple[float, float]:
    """Variance of the runs of one side, and the part of it that is seed x image interaction; 0 for a single run."""
    n = len(values)
    if n == 1:
        return 0.0, 0.0
    interaction = (np.trace(image_covariance) - image_covariance.mean() * n) / (n - 1)
    return float(values.var(ddof=1)), float(interaction)


# ---- Every metric of two sides ----


# Differences cannot be larger: the Brier score and the gap have a range of 2, NLL has no bound, the others are shares.
LARGEST = {"nll": np.inf, "brier": 2.0, "confidence_gap": 2.0}
HIGHER_IS_BETTER = {"accuracy", *(f"coverage_at_{name}_risk" for name in RISKS)}


class RunScores(NamedTuple):
    """A metric of each run, the covariance of these over the draw of images, and by how much each one is too large, at
    least and at most, `(runs, 2)`."""

    values: np.ndarray
    covariance: np.ndarray
    bias: np.ndarray | float = 0.0

    def difference(self, split: int, **options: Any) -> Comparison:
        """The first `split` runs against the others."""
        a, b = (side.mean(axis=0) for side in np.split(np.broadcast_to(self.bias, (len(self.values), 2)), [split]))
        bias = float(a[0] - b[1]), float(a[1] - b[0])
        return difference_of_runs(*np.split(self.values, [split]), self.covariance, bias=bias, **options)


def compare(
    a: SampleRows | Sequence[SampleRows],
    b: SampleRows | Sequence[SampleRows],
    *,
    n_bins: int = 15,
    n_resamples: int = 2000,
    same_seeds: bool = False,
    level: float = 0.95,
    seed: int = 0,
) -> ComparisonTable:
    """
    `a - b` in every metric, with intervals over test images and, if a side has several runs, over seeds as well.

    The rows must be of the same samples in the same order. Either side may be several runs, such as seeds.

    The interval of `ece` is that of the true difference: shifted by what noise adds to either side, and as much longer
    as that is uncertain, so it need not lie around `a - b`; likewise that of `debiased_ece`. `nll` and `brier` are not
    inflated, and judge calibration and accuracy together.

    Args:
        a, b ([`SampleRows`] or sequence of them): The runs of each side.
        n_bins (`int`, *optional*, defaults to `15`): Number of equal-width bins of the calibration errors.
        n_resamples (`int`, *optional*, defaults to `2000`): Number of bootstrap resamples for the coverage at a risk;
            at most 300 are used, since only a variance is needed.
        same_seeds (`bool`, *optional*, defaults to `False`): Whether run i of `a` and run i of `b` share what the seed
            decides, so that their differences count.
        level (`float`, *optional*, defaults to `0.95`): Probability that the intervals are meant to cover.
        seed (`int`, *optional*, defaults to `0`): Seed of the resamples.

    Returns:
        [`ComparisonTable`], a dictionary of [`Comparison`]: `accuracy`, `nll`, `ece`, `brier`, `debiased_ece` (L1),
        `confidence_gap` (mean confidence minus accuracy, so above 0 is overconfident; its verdict is about the
        distance from 0), `aurc`, `excess_aurc`, and `coverage_at_1%_risk`, `coverage_at_5%_risk`,
        `coverage_at_10%_risk`.

    Example:

    ```python
    >>> import torch
    >>> labels = torch.arange(400) % 4
    >>> right = 5.0 * torch.nn.functional.one_hot(labels, 4)
    >>> good, poor = SampleRows.from_logits(right, labels), SampleRows.from_logits(0 * right, labels)
    >>> compare(good, poor)["nll"].verdict
    'better'

    ```
    """
    check_settings(n_bins=n_bins, n_resamples=n_resamples)
    sides = [[side] if isinstance(side, SampleRows) else list(side) for side in (a, b)]
    runs, split = sides[0] + sides[1], len(sides[0])
    if not all(sides):
        raise ValueError("compare needs at least one run on each side")
    found, options = ComparisonTable(), {"same_seeds": same_seeds, "level": level}
    confidence, correct = _columns(runs)
    for name, scores in _scores(runs, confidence, correct, n_bins, max(2, min(n_resamples, 300)), seed).items():
        difference = scores.difference(split, **options, higher_is_better=name in HIGHER_IS_BETTER)
        # With two runs that differ a lot, an interval of the normal kind would leave what is possible.
        largest = LARGEST.get(name, 1.0)
        low, high = np.clip((difference.low, difference.high), -largest, largest)
        found[name] = difference._replace(low=float(low), high=float(high))
    gap = found["confidence_gap"]
    signs = np.repeat(np.sign([gap.a, gap.b]), [split, len(runs) - split])
    distances = np.split(signs[:, None] * (confidence - correct), [split])
    distance = paired_difference(*distances, **options, higher_is_better=False)
    found["confidence_gap"] = gap._replace(verdict=distance.verdict)
    return found


def _columns(runs: Sequence[SampleRows]) -> tuple[np.ndarray, np.ndarray]:
    """Confidences and hits of runs on the same samples, `(runs, samples)` each."""
    first = runs[0]
    for rows in runs:
        if not isinstance(rows, SampleRows):
            raise TypeError(f"compare takes SampleRows, such as load_run(folder).rows, got {rows!r:.80}")
        if not np.array_equal(rows.label, first.label) or len(rows) < 2:
            raise ValueError(
                f"the labels differ, or are too few ({len(first)} and {len(rows)} rows): compare needs the same "
                "samples, at least two, in one order"
            )
    return np.stack([rows.confidence for rows in runs]).astype(np.float64), np.stack([rows.correct for rows in runs])


def _scores(
    runs: list[SampleRows], confidence: np.ndarray, correct: np.ndarray, n_bins: int, n_resamples: int, seed: int
) -> dict[str, RunScores]:
    pairs = list(zip(confidence, correct, strict=True))
    accuracy, nll, brier, gap = (
        RunScores(*_means(x)) for x in (correct, [r.nll for r in runs], [r.brier for r in runs], confidence - correct)
    )
    # With one run a side and few images on which they differ, the plain interval is too short: half an image more that
    # each got right and the other wrong (Agresti and Min 2005). Between several runs it would cancel as interaction.
    if len(runs) == 2 and (correct[0] != correct[1]).any():
        accuracy.covariance.flat[::3] += 0.5 / correct.shape[1] ** 2
    ece = _ece_scores(confidence, correct, n_bins)
    less = np.array([calibration_error(c, y, n_bins=n_bins, debiased=True) for c, y in pairs])
    debiased = ece._replace(values=less, bias=ece.bias - (ece.values - less)[:, None])
    areas, excesses = zip(*(aurc_without_each(c, y) for c, y in pairs), strict=True)
    coverages, resampled = resampled_coverages(confidence, correct, n_resamples, seed)
    found = {"accuracy": accuracy, "nll": nll, "ece": ece, "brier": brier, "debiased_ece": debiased}
    found |= {"confidence_gap": gap, "aurc": _jackknifed(areas), "excess_aurc": _jackknifed(excesses)}
    for name, values, draws in zip(RISKS, coverages, resampled, strict=True):
        found[f"coverage_at_{name}_risk"] = RunScores(values, np.cov(draws))
    return found


def ece_difference(a: SampleRows, b: SampleRows) -> Comparison:
    """The `ece` of [`compare`] alone, for one run on each side."""
    return _ece_scores(*_columns([a, b]), n_bins=15).difference(1, higher_is_better=False)


def _ece_scores(confidence: np.ndarray, correct: np.ndarray, n_bins: int) -> RunScores:
    runs = list(zip(confidence, correct, strict=True))
    bias = np.stack([noise_inflation(*run, n_bins) for run in runs])
    return _jackknifed([_ece_without_each(*run, n_bins) for run in runs])._replace(bias=bias)


def _jackknifed(scores: Sequence[tuple[float, np.ndarray]]) -> RunScores:
    """From the score of each run and the scores without each image in turn, shape `(n,)`."""
    values, without = (np.stack(part) for part in zip(*scores, strict=True))
    n = without.shape[1]
    influence = (without.mean(axis=1, keepdims=True) - without) * np.sqrt((n - 1) / n)
    return RunScores(values, influence @ influence.T)


def _ece_without_each(confidence: np.ndarray, correct: np.ndarray, n_bins: int) -> tuple[float, np.ndarray]:
    n, index = len(confidence), bin_index(confidence, n_bins)
    sums = bin_sums(index, n_bins, None, confidence, correct)
    totals = sums[0] * bin_terms(*sums)
    less = sums[:, index] - np.stack([np.ones(n), confidence, correct])
    without = totals.sum() - totals[index] + less[0] * bin_terms(*less)
    return float(totals.sum() / n), without / (n - 1)


def noise_inflation(confidence: np.ndarray, correct: np.ndarray, n_bins: int = 15) -> np.ndarray:
    """
    By how much the calibration error of these bins exceeds the true one on average: at least and at most, `(2,)`.

    With d[b] the sum over the images of bin b of (confidence - hit) / n, the error is the sum of |d[b]|, and noise
    makes each |d[b]| too large by what the mean of a folded normal (Leone, Nelson and Nottingham 1961) exceeds its
    true size. The measured sizes hold noise themselves; they are shrunk to have the true ones' sum of squares on
    average, by the positive part of (James and Stein 1961; Efron and Morris 1973)

        t^2 = (sum of d^2 - sum of their variances) / (sum of d^2),    at most 1.

    A calibrated model has t = 0, and noise is all it shows. The two ends are what t^2 gives one standard error above
    and below its estimate: a quadratic form d'd of normals with mean m and covariance C has the variance
    2 tr(C^2) + 4 m'Cm.

    ```python
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(0.5, 1, 1000)
    >>> noise_inflation(confidence, rng.random(1000) < confidence).round(3).tolist()  # calibrated
    [0.015, 0.028]
    >>> noise_inflation(confidence, rng.random(1000) < confidence - 0.3).round(3).tolist()  # not at all
    [0.0, 0.0]

    ```
    """
    n, index = len(confidence), bin_index(confidence, n_bins)
    error = confidence - correct
    gap, square = bin_sums(index, n_bins, error, error**2) / n
    # An image is in one bin only, so products of two bins are those of the means.
    covariance = (np.diag(square) - np.outer(gap, gap)) / max(n - 1, 1)
    size = gap @ gap
    if size == 0:
        return np.zeros(2)
    excess = size - covariance.trace()
    deviation = np.sqrt(2 * (covariance**2).sum() + 4 * max(excess, 0) / size * gap @ covariance @ gap)
    shrunk = np.sqrt(np.clip((excess + np.array([1, -1]) * deviation) / size, 0, 1))[:, None] * np.abs(gap)
    return (folded_mean(shrunk, np.sqrt(covariance.diagonal().clip(0))) - shrunk).sum(axis=1)


# ---- A table of comparisons ----


ARROWS = {"higher": "↑", "lower": "↓", "near 0": "→ 0"}
VERDICTS = {"better": "a is better", "worse": "b is better", "undecided": "undecided", "equal": "equal"}
COVERED = {
    "images": "One run a side: the intervals cover other test images, not another training run.",
    "images and seeds": "The intervals cover other test images and other training runs.",
}


class ComparisonTable(dict[str, Comparison]):
    """A [`Comparison`] for each metric: a table in a notebook and, with `print`, on a terminal."""

    def __str__(self) -> str:
        return "\n".join([self._covered, "", *table_lines(self._table(list(self)))])

    def _repr_html_(self) -> str:
        return f"<p>{self._covered}</p>" + table_html(self._table(map(title_of, self)))

    @property
    def _covered(self) -> str:
        return COVERED[next(iter(self.values())).covers]

    def _table(self, names: Iterable[str]) -> Table:
        rows = []
        for name, (metric, found) in zip(names, self.items(), strict=True):
            difference, low, high = difference_text(metric, found)
            values = value_text(metric, found.a), value_text(metric, found.b), difference, f"[{low}, {high}]"
            rows.append((name, *values, VERDICTS[found.verdict]))
        return Table(("", "a", "b", "a - b", "95 % interval", "verdict"), rows)


def title_of(metric: str) -> str:
    """What a page calls a metric, with an arrow to its better values."""
    return f"{METRICS[metric].title} {ARROWS[METRICS[metric].better]}"


def value_text(metric: str, value: float) -> str:
    """A value with its unit."""
    scale, unit, digits = METRICS[metric].style
    return f"{scale * value:.{digits}f}{unit}"


def difference_text(metric: str, found: Comparison) -> tuple[str, str, str]:
    """The difference and the ends of its interval."""
    scale, _, digits = METRICS[metric].style
    difference, low, high = (f"{scale * v:+.{digits}f}" for v in (found.difference, found.low, found.high))
    return difference, low, high
