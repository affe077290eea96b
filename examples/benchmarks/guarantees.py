"""Whether promises hold: over random splits of real outputs of a model, printed as JSON.

    python examples/benchmarks/guarantees.py logits.npz runs/my-run --output guarantees.json

Each is an `.npz` with `logits` (n, classes) and `labels` (n,), or the folder of a run, whose rows have LAC and
abstention only. In every split a random half of the samples is held out and used as after training: half of it fits
the temperature (rows of a run have theirs already), half makes the promises. The other samples are the test.

- `sets`: for each method and promised coverage, what the law says (the mean, and the 5 % and 95 % quantiles of the
  beta-binomial distribution) beside what was found if sets may be empty, where the law is exact; then with the most
  probable class in every set, which is the default, and the mean size of those sets.
- `abstention`: for each promised accuracy, the share of splits with a threshold, the mean share of test samples that
  are answered with it, and how often their accuracy was too low: among all samples, which is what the promise is
  about (at most delta), and among the test samples of the split, which are a sample themselves (up to twice delta).
"""

import argparse
import logging
import math
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from side_by_side import publish

from macs_hf.calibration import (
    abstention_threshold,
    fit_temperature,
    prediction_set_threshold,
    prediction_sets,
    split_held_out,
)
from macs_hf.calibration.guarantees import ACCURACIES, COVERAGES
from macs_hf.report import load_run


DELTA = 0.05


class Pool:
    """All samples of a file, on which splits are drawn."""

    def __init__(self, path: Path) -> None:
        self.fits_temperature = path.suffix == ".npz"
        if self.fits_temperature:
            stored = np.load(path)
            self.logits, self.labels = torch.tensor(stored["logits"]), torch.tensor(stored["labels"])
            self.correct = self.logits.argmax(1) == self.labels
            self.methods = ("lac", "raps")
        else:
            # LAC needs no more than the probability of the own class: one class against all others.
            rows = load_run(path).rows
            nll = torch.tensor(rows.nll, dtype=torch.float64).clamp(min=1e-12)
            self.logits, self.labels = (
                torch.stack([-nll, (-torch.expm1(-nll)).log()], 1),
                torch.zeros(len(rows)).long(),
            )
            self.correct, self.confidence = torch.tensor(rows.correct), torch.tensor(rows.confidence)
            self.methods = ("lac",)

    def with_temperature(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and confidences of all samples, at the temperature of the given ones."""
        if not self.fits_temperature:
            return self.logits, self.confidence
        logits = self.logits / fit_temperature(self.logits[rows], self.labels[rows])
        return logits, logits.double().softmax(1).amax(1)


def benchmark(path: Path, splits: int) -> dict:
    pool = Pool(path)
    total = len(pool.labels)
    hits: dict[tuple[str, float], list] = {(method, level): [] for method in pool.methods for level in COVERAGES}
    answers: dict[float, list] = {accuracy: [] for accuracy in ACCURACIES}
    for split in range(splits):
        order = np.random.default_rng([7, split]).permutation(total)
        held_out, test = order[: total // 2], order[total // 2 :]
        fit, promise = (held_out[part] for part in split_held_out(len(held_out), seed=split))
        logits, confidence = pool.with_temperature(fit)
        for (method, level), found in hits.items():
            threshold = prediction_set_threshold(logits[promise], pool.labels[promise], level, method)
            exact = prediction_sets(logits[test], threshold, method, allow_empty=True)
            covered = exact.gather(1, pool.labels[test, None])[:, 0]
            # The most probable class is added to an empty set, and is in every other one already.
            found.append(
                (covered.sum(), (covered | pool.correct[test]).sum(), exact.sum(1).clamp(min=1).double().mean())
            )
        for accuracy, found in answers.items():
            threshold = abstention_threshold(confidence[promise], pool.correct[promise], accuracy, DELTA)
            if threshold is not None:
                sure = confidence >= threshold
                right = [pool.correct[part][sure[part]].double().mean() for part in (np.arange(total), test)]
                found.append((sure[test].double().mean(), *(share < accuracy for share in right)))
    sizes = {"temperature": len(fit) if pool.fits_temperature else 0, "promises": len(promise), "test": len(test)}
    return {
        "samples": total,
        "accuracy": round(pool.correct.double().mean().item(), 4),
        "splits": splits,
        "samples_of_a_split": sizes,
        "sets": {method: _sets(pool, method, hits, len(promise), len(test)) for method in pool.methods},
        "abstention": {str(accuracy): _abstention(found, splits) for accuracy, found in answers.items()},
    }


def _sets(pool: Pool, method: str, hits: dict, n: int, m: int) -> dict:
    table = {}
    for level in COVERAGES:
        exact, covered, size = np.array(hits[method, level], dtype=float).T
        k = math.ceil(round((n + 1) * level, 9))
        law = stats.betabinom(m, k, n + 1 - k)
        table[str(level)] = {
            "law": [round(float(x) / m, 4) for x in (law.mean(), *law.ppf([0.05, 0.95]))],
            "found": [round(float(x) / m, 4) for x in (exact.mean(), *np.quantile(exact, [0.05, 0.95]))],
            "found_with_top_class": round(covered.mean() / m, 4),
        } | ({"mean_size_with_top_class": round(size.mean(), 3)} if pool.fits_temperature else {})
    return table


def _abstention(found: list, splits: int) -> dict:
    table = {"delta": DELTA, "share_with_threshold": round(len(found) / splits, 3)}
    if found:
        answered, broken_in_pool, broken_in_test = np.array(found, dtype=float).T
        table |= {
            "answered": round(answered.mean(), 4),
            "broken_in_pool": broken_in_pool.sum() / splits,
            "broken_in_test": broken_in_test.sum() / splits,
        }
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="logits and labels, or the folder of a run")
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)  # one for each split without a threshold
    results = {path.stem if path.suffix == ".npz" else path.name: benchmark(path, args.splits) for path in args.files}
    results["versions"] = {name: version(name) for name in ("torch", "numpy", "scipy")}
    publish(results, args.output)


if __name__ == "__main__":
    main()
