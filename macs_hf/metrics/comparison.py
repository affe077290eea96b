"""Paired comparison of two models, or of two recipes with several seeds each, from per-sample rows.

Differences of means over images (accuracy, NLL, Brier score) have the interval of `differences.py`. ECE and AURC are
no means: what each image adds to them is the estimate of the jackknife, leaving out one image at a time. The coverage
at a risk, which jumps, takes the bootstrap.

A plug-in ECE is too large on average, since noise adds to the gap of each bin; most where there is no gap, so a
difference to a calibrated model looks too small. See [`noise_inflation`] for how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..report.rows import SampleRows
from ..report.sections import METRICS
from ..report.text import SPACE, in_notebook, table, words
from .differences import Comparison, difference_of_runs, mean_scores, paired_difference
from .ece import bin_index, bin_terms, calibration_error, check_bins, check_resamples, folded_mean
from .selective import RISKS, aurc_without_each, resampled_coverages


# Differences cannot be larger: the Brier score and the gap have a range of 2, NLL has no bound, the others are shares.
LARGEST = {"nll": np.inf, "brier": 2.0, "confidence_gap": 2.0}
HIGHER_IS_BETTER = {"accuracy", *(f"coverage_at_{name}_risk" for name in RISKS)}


class RunScores(NamedTuple):
    """A metric of each run, the covariance of these over the draw of images, and by how much each one is too large, at
    least and at most, `(runs, 2)`; nothing for metrics without a bias."""

    values: np.ndarray
    covariance: np.ndarray
    bias: np.ndarray | None = None


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
        a, b ([`SampleRows`] or sequence of them):
            The runs of each side.
        n_bins (`int`, *optional*, defaults to `15`):
            Number of equal-width bins of the calibration errors.
        n_resamples (`int`, *optional*, defaults to `2000`):
            Number of bootstrap resamples for the coverage at a risk; at most 300 are used, since only a variance is
            needed.
        same_seeds (`bool`, *optional*, defaults to `False`):
            Whether run i of `a` and run i of `b` share what the seed decides, so that their differences count.
        level (`float`, *optional*, defaults to `0.95`):
            Probability that the intervals are meant to cover.
        seed (`int`, *optional*, defaults to `0`):
            Seed of the resamples.

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
    check_bins(n_bins)
    check_resamples(n_resamples)
    sides = [[side] if isinstance(side, SampleRows) else list(side) for side in (a, b)]
    runs = [rows for side in sides for rows in side]
    _check_alike(sides, runs)
    split = len(sides[0])
    found = ComparisonTable()
    for name, scores in _scores(runs, n_bins, max(2, min(n_resamples, 300)), seed).items():
        difference = difference_of_runs(
            scores.values[:split],
            scores.values[split:],
            scores.covariance,
            bias=_bias_of_difference(scores, split),
            same_seeds=same_seeds,
            level=level,
            higher_is_better=name in HIGHER_IS_BETTER,
        )
        # With two runs that differ a lot, an interval of the normal kind would leave what is possible.
        low, high = np.clip((difference.low, difference.high), *(sign * LARGEST.get(name, 1.0) for sign in (-1, 1)))
        found[name] = difference._replace(low=float(low), high=float(high))
    gap = found["confidence_gap"]
    signs = np.repeat(np.sign([gap.a, gap.b]), [split, len(runs) - split])
    gaps = np.stack([rows.confidence.astype(np.float64) - rows.correct for rows in runs])
    distance = paired_difference(
        *np.split(signs[:, None] * gaps, [split]), same_seeds=same_seeds, level=level, higher_is_better=False
    )
    found["confidence_gap"] = gap._replace(verdict=distance.verdict)
    return found


def _check_alike(sides: list[list[SampleRows]], runs: list[SampleRows]) -> None:
    for rows in runs:
        if not isinstance(rows, SampleRows):
            raise TypeError(f"compare takes SampleRows, such as load_run(folder).rows, got {rows!r:.80}")
    if not all(sides):
        raise ValueError("compare needs at least one run on each side")
    for rows in runs[1:]:
        if len(rows) != len(runs[0]) or not np.array_equal(rows.label, runs[0].label):
            raise ValueError(
                f"the labels differ ({len(runs[0])} and {len(rows)} rows): compare needs the same samples in one order"
            )
    if len(runs[0]) < 2:
        raise ValueError("compare needs at least two samples")


def _scores(runs: list[SampleRows], n_bins: int, n_resamples: int, seed: int) -> dict[str, RunScores]:
    confidence, nll, brier = (
        np.stack([column.astype(np.float64) for column in columns])
        for columns in zip(*((rows.confidence, rows.nll, rows.brier) for rows in runs), strict=True)
    )
    correct = np.stack([rows.correct for rows in runs])
    found = {name: RunScores(*mean_scores(x)) for name, x in (("accuracy", correct), ("nll", nll))}
    # With one run a side and few images on which they differ, the plain interval is too short: half an image more that
    # each got right and the other wrong (Agresti and Min 2005). Between several runs it would cancel as interaction.
    if len(runs) == 2 and (correct[0] != correct[1]).any():
        found["accuracy"].covariance.flat[::3] += 0.5 / correct.shape[1] ** 2
    found["ece"] = plain = _ece_scores(confidence, correct, n_bins)
    found["brier"] = RunScores(*mean_scores(brier))
    less = [calibration_error(c, y, n_bins=n_bins, debiased=True) for c, y in zip(confidence, correct, strict=True)]
    found["debiased_ece"] = plain._replace(values=np.array(less), bias=plain.bias - (plain.values - less)[:, None])
    found["confidence_gap"] = RunScores(*mean_scores(confidence - correct))
    areas = [aurc_without_each(c, y) for c, y in zip(confidence, correct, strict=True)]
    found["aurc"] = _jackknifed([area for area, _ in areas])
    found["excess_aurc"] = _jackknifed([excess for _, excess in areas])
    coverages, resampled = resampled_coverages(confidence, correct, n_resamples, seed)
    for i, name in enumerate(RISKS):
        found[f"coverage_at_{name}_risk"] = RunScores(coverages[i], np.cov(resampled[i]))
    return found


def ece_difference(a: SampleRows, b: SampleRows, n_bins: int = 15) -> Comparison:
    """The `ece` of [`compare`] alone, for one run on each side."""
    _check_alike([[a], [b]], [a, b])
    confidence = np.stack([rows.confidence.astype(np.float64) for rows in (a, b)])
    scores = _ece_scores(confidence, np.stack([a.correct, b.correct]), n_bins)
    bias = _bias_of_difference(scores, 1)
    return difference_of_runs(*np.split(scores.values, 2), scores.covariance, bias=bias, higher_is_better=False)


def _ece_scores(confidence: np.ndarray, correct: np.ndarray, n_bins: int) -> RunScores:
    runs = list(zip(confidence, correct, strict=True))
    bias = np.stack([noise_inflation(*run, n_bins) for run in runs])
    return _jackknifed([_ece_without_each(*run, n_bins) for run in runs])._replace(bias=bias)


def _jackknifed(scores: list[tuple[float, np.ndarray]]) -> RunScores:
    """From the score of each run and the scores without each image in turn, shape `(n,)`."""
    without = np.stack([less for _, less in scores])
    n = without.shape[1]
    influence = (without.mean(axis=1, keepdims=True) - without) * np.sqrt((n - 1) / n)
    return RunScores(np.array([value for value, _ in scores]), influence @ influence.T)


def _ece_without_each(confidence: np.ndarray, correct: np.ndarray, n_bins: int) -> tuple[float, np.ndarray]:
    n, index = len(confidence), bin_index(confidence, n_bins)
    sums = [np.bincount(index, weights=w, minlength=n_bins) for w in (None, confidence, correct)]
    totals = sums[0] * bin_terms(*sums)
    less = [column[index] - own for column, own in zip(sums, (1.0, confidence, correct), strict=True)]
    without = totals.sum() - totals[index] + less[0] * bin_terms(*less)
    return float(totals.sum() / n), without / (n - 1)


def noise_inflation(confidence: np.ndarray, correct: np.ndarray, n_bins: int = 15) -> np.ndarray:
    """
    By how much the calibration error of these bins exceeds the true one on average: at least and at most, `(2,)`.

    With d[b] the sum over the images of bin b of (confidence - hit) / n, the error is the sum of |d[b]|, and noise
    makes each |d[b]| too large by what the mean of a folded normal exceeds its true size. The measured sizes hold
    noise themselves; shrunk as James and Stein do, by

        t^2 = (sum of d^2 - sum of their variances) / (sum of d^2),    within [0, 1],

    they have on average the size of the true ones. A calibrated model has t = 0, and noise is all it shows. The two
    ends are what t^2 gives one standard error above and below its estimate.

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
    gap = np.bincount(index, weights=error, minlength=n_bins) / n
    # An image is in one bin only, so products of two bins are those of the means.
    covariance = np.diag(np.bincount(index, weights=error**2, minlength=n_bins) / n) - np.outer(gap, gap)
    covariance /= max(n - 1, 1)
    size = gap @ gap
    if size == 0:
        return np.zeros(2)
    excess = size - covariance.trace()
    deviation = np.sqrt(2 * (covariance**2).sum() + 4 * max(excess, 0) / size * gap @ covariance @ gap)
    shrunk = np.sqrt(np.clip((excess + np.array([1, -1]) * deviation) / size, 0, 1))[:, None] * np.abs(gap)
    return (folded_mean(shrunk, np.sqrt(covariance.diagonal().clip(0))) - shrunk).sum(axis=1)


def _bias_of_difference(scores: RunScores, split: int) -> tuple[float, float]:
    """By how much the difference of the two sides is too large, at least and at most."""
    if scores.bias is None:
        return 0.0, 0.0
    a, b = scores.bias[:split].mean(axis=0), scores.bias[split:].mean(axis=0)
    return float(a[0] - b[1]), float(a[1] - b[0])


# ---- A table of comparisons ----
# Comparisons by metric, as a table that a notebook shows.


ARROWS = {"higher": "↑", "lower": "↓", "near 0": "→ 0"}
VERDICTS = {"better": "a is better", "worse": "b is better", "undecided": "may be chance", "equal": "equal"}


class ComparisonTable(dict[str, Comparison]):
    """A [`Comparison`] for each metric."""

    def _repr_html_(self) -> str:
        rows = [
            [
                title_of(metric),
                shown_value(metric, found.a),
                shown_value(metric, found.b),
                "{} <small>{} to {}</small>".format(*shown_difference(metric, found)),
                VERDICTS[found.verdict],
            ]
            for metric, found in self.items()
        ]
        covers = next(iter(self.values())).covers if self else "images"
        hint = f"<p>Small: 95{SPACE}% intervals of the difference, over test {covers}.</p>"
        return in_notebook(hint + table(["", "a", "b", "a - b", ""], rows))


def title_of(metric: str) -> str:
    """What a page calls a metric, with an arrow to its better values."""
    return f"{METRICS[metric].title} {ARROWS[METRICS[metric].better]}"


def shown_value(metric: str, value: float) -> str:
    scale, unit, digits = METRICS[metric].style
    return words(f"{scale * value:.{digits}f}{unit}")


def shown_difference(metric: str, found: Comparison) -> tuple[str, str, str]:
    """The difference and the ends of its interval."""
    scale, _, digits = METRICS[metric].style
    difference, low, high = (f"{scale * v:+.{digits}f}" for v in (found.difference, found.low, found.high))
    return difference, low, high
