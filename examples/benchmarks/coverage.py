"""How often the 95 % intervals of comparisons hold the true difference, in simulated studies; printed as JSON.

    python examples/benchmarks/coverage.py --output coverage.json

Each study draws test images and training runs anew. `paired_difference` is tried on values like NLL (skewed), on
values like accuracy (right or wrong) and on accuracy under corruption where each image is seen under 5 of 15
corruptions; `compare` on the calibration errors of models as sharp as the truth, sharper and blunter. "same_seeds" is
the interval of runs paired by seed; "counted_twice" that of pairs which adds the variance over seeds and that over
images, though both hold the seed x image interaction.
"""

import argparse
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from scipy.special import expit, ndtr, ndtri
from scipy.stats import t

from macs_hf.metrics import Comparison, compare, paired_difference
from macs_hf.metrics.ece import bin_index
from macs_hf.report.rows import SampleRows


RUNS = ((1, 1), (2, 2), (3, 3), (5, 5), (2, 5), (1, 3))
# Standard deviations: of a side's own effect on an image, and of seed x image.
OWN, INTERACTION = 0.3, 0.5
# Of a seed's mean, over the standard error that the images alone give a difference.
SEED_EFFECTS = {"none": 0.0, "as images": 1.0, "large": 4.0}
SHARPNESS = {
    "both overconfident": (1.5, 2.0),
    "equally overconfident": (1.5, 1.5),
    "calibrated against overconfident": (1.0, 1.5),
    "calibrated against slightly overconfident": (1.0, 1.2),
    "both calibrated": (1.0, 1.0),
    "underconfident against overconfident": (0.8, 1.3),
}

Sides = tuple[np.ndarray, np.ndarray]


def effects(rng: np.random.Generator, runs: tuple[int, int], n: int, interaction: float, seed_sd: float) -> Sides:
    """`(seeds, images)` of each side, normal, less what both sides have in common."""
    return tuple(
        OWN * rng.standard_normal(n)
        + seed_sd * rng.standard_normal((s, 1))
        + interaction * rng.standard_normal((s, n))
        for s in runs
    )


def like_nll(rng: np.random.Generator, *design: float) -> tuple[Sides, float]:
    a, b = effects(rng, *design)
    image = rng.exponential(1.0, a.shape[1])
    return (0.02 + image + a, image + b), 0.02


def like_accuracy(rng: np.random.Generator, *design: float) -> tuple[Sides, float]:
    a, b = effects(rng, *design)
    image = rng.standard_normal(a.shape[1])
    scale = np.sqrt(1 + OWN**2 + design[2] ** 2 + design[3] ** 2)
    return (1.6 + image + a > 0, 1.5 + image + b > 0), float(ndtr(1.6 / scale) - ndtr(1.5 / scale))


def like_corruptions(rng: np.random.Generator, *design: float) -> tuple[Sides, float]:
    """Each image under 5 of 15 corruptions, NaN under the others; corruptions are harder the higher their number."""
    a, b = effects(rng, *design)
    n, hardness = a.shape[1], np.linspace(0, 1.5, 15)
    image = rng.standard_normal(n)[:, None] + 0.7 * rng.standard_normal((n, 15)) - hardness
    seen = (np.arange(n)[:, None] + np.arange(15)) % 3 == 0
    scale = np.sqrt(1 + 0.7**2 + OWN**2 + design[2] ** 2 + design[3] ** 2)
    sides = tuple(np.where(seen, mean + image + side[..., None] > 0, np.nan) for mean, side in ((1.1, a), (1.0, b)))
    return sides, float((ndtr((1.1 - hardness) / scale) - ndtr((1.0 - hardness) / scale)).mean())


@cache
def student(freedom: int) -> float:
    return float(t.ppf(0.975, freedom))


def counted_twice(a: np.ndarray, b: np.ndarray) -> float:
    """Half-width over seeds, paired, joined with that over images."""
    n, seeds = a.shape[1], (a - b).mean(axis=1)
    images = ndtri(0.975) * (a - b).mean(axis=0).std(ddof=1) / np.sqrt(n)
    return float(np.hypot(images, student(len(seeds) - 1) * seeds.std(ddof=1) / np.sqrt(len(seeds))))


def of_means(name: str, draw: Callable, args: argparse.Namespace, rng: np.random.Generator) -> list[dict]:
    found, studies = [], args.studies if name != "corruptions" else max(1, args.studies // 4)
    for runs in RUNS:
        for interaction in (0.0, INTERACTION):
            for effect, ratio in SEED_EFFECTS.items():
                if runs == (1, 1) and ratio:
                    continue  # of one run a side, the interval is of the images alone
                if name == "corruptions" and (effect == "large" or runs in ((5, 5), (1, 3))):
                    continue  # slow, and nothing new
                seed_sd = ratio * OWN * np.sqrt(2 / args.images) * np.sqrt(min(runs) / 2)
                if name != "nll":
                    seed_sd *= 1.5  # right and wrong answers vary more over images
                hits, pairs, twice, width = 0, 0, 0, 0.0
                for _ in range(studies):
                    (a, b), truth = draw(rng, runs, args.images, interaction, seed_sd)
                    comparison = paired_difference(a, b)
                    hits += comparison.low <= truth <= comparison.high
                    width += comparison.high - comparison.low
                    if runs[0] == runs[1] > 1:
                        paired = paired_difference(a, b, same_seeds=True)
                        pairs += paired.low <= truth <= paired.high
                    if runs[0] == runs[1] > 1 and a.ndim == 2:
                        a, b = a.astype(float), b.astype(float)
                        twice += abs(a.mean() - b.mean() - truth) <= counted_twice(a, b)
                record = {"metric": name, "runs": runs, "interaction": interaction > 0, "seed_effect": effect}
                record |= {"coverage": hits / studies, "width": round(width / studies, 5)}
                if runs[0] == runs[1] > 1:
                    record["same_seeds"] = pairs / studies
                if runs[0] == runs[1] > 1 and a.ndim == 2:
                    record["counted_twice"] = twice / studies
                found.append(record)
    return found


def calibrated_images(rng: np.random.Generator, n: int) -> np.ndarray:
    """Log-odds that the answer to each image is right."""
    return np.clip(rng.normal(2.2, 1.6, n), -1.5, 8)


def claimed(log_odds: np.ndarray, sharpness: float) -> np.ndarray:
    return np.clip(expit(sharpness * log_odds), 0.1, 1)


def true_errors(sharpness: float, spread: float) -> dict[str, float]:
    """The calibration error of bins and the mean gap, from 300,000 images, averaged over 21 runs."""
    rng = np.random.default_rng(1)
    log_odds = calibrated_images(rng, 300_000)
    errors, gaps = [], []
    for quantile in (np.arange(21) + 0.5) / 21:
        confidence = claimed(log_odds, sharpness * np.exp(spread * ndtri(quantile)))
        gap = np.bincount(bin_index(confidence), weights=confidence - expit(log_odds), minlength=15)
        errors.append(np.abs(gap).sum() / len(log_odds))
        gaps.append(gap.sum() / len(log_odds))
        if not spread:
            break
    return {"ece": np.mean(errors), "debiased_ece": np.mean(errors), "confidence_gap": np.mean(gaps)}


def simulated_rows(rng: np.random.Generator, log_odds: np.ndarray, luck: np.ndarray, sharpness: float) -> SampleRows:
    """A run that shares the luck of 7 in 10 images with all others."""
    n = len(log_odds)
    right = np.where(rng.random(n) < 0.7, luck, rng.random(n)) < expit(log_odds)
    zeros = np.zeros(n, np.float32)
    confidence = claimed(log_odds, sharpness).astype(np.float32)
    return SampleRows(np.zeros(n, np.int32), (~right).astype(np.int32), confidence, zeros, zeros, zeros)


def simulated_comparison(
    rng: np.random.Generator, runs: tuple[int, int], n: int, sharpness: tuple[float, float], spread: float
) -> dict[str, Comparison]:
    log_odds, luck = calibrated_images(rng, n), rng.random(n)
    sides = [
        [simulated_rows(rng, log_odds, luck, mean * np.exp(spread * rng.standard_normal())) for _ in range(s)]
        for s, mean in zip(runs, sharpness, strict=True)
    ]
    return compare(*sides, n_resamples=2)


def of_calibration(args: argparse.Namespace, rng: np.random.Generator) -> list[dict]:
    found = []
    for case, sharpness in SHARPNESS.items():
        for runs in ((1, 1), (2, 2), (3, 3), (5, 5), (2, 5)):
            spread = 0.0 if runs == (1, 1) else 0.05
            of_a, of_b = (true_errors(value, spread) for value in sharpness)
            hits, decided = dict.fromkeys(of_a, 0), dict.fromkeys(of_a, 0)
            studies = max(1, args.studies // 4)
            for _ in range(studies):
                comparisons = simulated_comparison(rng, runs, args.images, sharpness, spread)
                for name in hits:
                    comparison = comparisons[name]
                    hits[name] += comparison.low <= of_a[name] - of_b[name] <= comparison.high
                    decided[name] += comparison.verdict in ("better", "worse")
            for name in hits:
                record = {"metric": name, "runs": runs, "case": case, "coverage": hits[name] / studies}
                found.append(record | {"decided": decided[name] / studies})
    return found


def extremes(results: list[dict], key: str) -> dict[str, list[float]]:
    """The lowest and the highest coverage of each metric."""
    kept = [r for r in results if key in r]
    names = dict.fromkeys(r["metric"] for r in kept)
    return {name: [f(r[key] for r in kept if r["metric"] == name) for f in (min, max)] for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulated coverage of the intervals of comparisons, as JSON.")
    parser.add_argument("--studies", type=int, default=2000, help="Per setting; a quarter if they are slow.")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--output", type=Path, help="Also write the JSON here.")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    draws = {"nll": like_nll, "accuracy": like_accuracy, "corruptions": like_corruptions}
    results = [record for name, draw in draws.items() for record in of_means(name, draw, args, rng)]
    results += of_calibration(args, np.random.default_rng(1))
    summary = {"level": 0.95, "studies": args.studies, "images": args.images}
    summary |= {key: extremes(results, key) for key in ("coverage", "same_seeds", "counted_twice")}
    lines = ",\n    ".join(json.dumps(record) for record in results)
    text = json.dumps(summary, indent=2)[:-2] + f',\n  "results": [\n    {lines}\n  ]\n}}'
    print(text)
    if args.output:
        args.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
