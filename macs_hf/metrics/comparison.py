"""Paired comparison of two models, or of two recipes with several seeds each, from per-sample rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..report.rows import SampleRows
from .comparison_table import ComparisonTable
from .difference import covariance, difference_of_runs, mean_scores, paired_difference
from .ece import calibration_error
from .inflation import noise_inflation
from .jackknife import jackknife, score_without_each
from .risk_coverage import RISKS, aurc_without_each, resampled_coverages
from .score_options import check_bins, check_resamples


# Differences cannot be larger: the Brier score and the gap have a range of 2, NLL has no bound, the others are shares.
LARGEST = {"nll": np.inf, "brier": 2.0, "confidence_gap": 2.0}
HIGHER_IS_BETTER = {"accuracy", *(f"coverage_at_{name}_risk" for name in RISKS)}


class RunScores(NamedTuple):
    """A metric of each run, the covariance of these over the draw of images, and how much too large each one is: at
    least, about, and at most, `(runs, 3)`; nothing for metrics without a bias."""

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

    The rows must be of the same samples in the same order. Either side may be several runs, such as seeds. See
    `interval_width.py` for the interval. Metrics that are no means over images (ECE, AURC) take the jackknife over
    images, and the coverage at a risk the bootstrap.

    The plug-in `ece` is inflated by noise, and more so for the better calibrated side, so a difference of two is too
    small. Its interval is that of the true difference: shifted by what noise adds, and as much longer as that is
    uncertain (`inflation.py`), so it need not lie around `a - b`; likewise that of `debiased_ece`. `nll` and `brier`
    are not inflated, and judge calibration and accuracy together.

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
    plain = _jackknifed([score_without_each(c, y, n_bins) for c, y in zip(confidence, correct, strict=True)])
    bias = np.stack([noise_inflation(c, y, n_bins) for c, y in zip(confidence, correct, strict=True)])
    found["ece"] = plain._replace(bias=bias)
    found["brier"] = RunScores(*mean_scores(brier))
    less = [calibration_error(c, y, n_bins=n_bins, debiased=True) for c, y in zip(confidence, correct, strict=True)]
    found["debiased_ece"] = plain._replace(values=np.array(less), bias=bias - (plain.values - less)[:, None])
    found["confidence_gap"] = RunScores(*mean_scores(confidence - correct))
    areas = [aurc_without_each(c, y) for c, y in zip(confidence, correct, strict=True)]
    found["aurc"] = _jackknifed([area for area, _ in areas])
    found["excess_aurc"] = _jackknifed([excess for _, excess in areas])
    coverages, resampled = resampled_coverages(confidence, correct, n_resamples, seed)
    for i, name in enumerate(RISKS):
        found[f"coverage_at_{name}_risk"] = RunScores(coverages[i], np.cov(resampled[i]))
    return found


def _jackknifed(scores: list[tuple[float, np.ndarray]]) -> RunScores:
    """From the score of each run and the scores without each image."""
    values = np.array([value for value, _ in scores])
    influence = np.stack([jackknife(without) for _, without in scores])
    return RunScores(values, covariance(influence))


def _bias_of_difference(scores: RunScores, split: int) -> tuple[float, float]:
    """By how much the difference of the two sides is too large, at least and at most."""
    if scores.bias is None:
        return 0.0, 0.0
    a, b = scores.bias[:split].mean(axis=0), scores.bias[split:].mean(axis=0)
    within_a, within_b, between = (
        scores.covariance[rows, columns].mean()
        for rows, columns in (
            (slice(split), slice(split)),
            (slice(split, None), slice(split, None)),
            (slice(split), slice(split, None)),
        )
    )
    # What is uncertain because of the images is so for both sides where they err on the same ones, and cancels.
    own = np.sqrt(1 - np.clip(between / max(np.sqrt(within_a * within_b), 1e-300), 0, 1))
    about = a[1] - b[1]
    return float(about - own * (about - (a[0] - b[2]))), float(about + own * (a[2] - b[0] - about))
