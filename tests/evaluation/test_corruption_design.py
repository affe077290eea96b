"""The spread design: who is seen under what, the table it gives, and that its intervals hold."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from macs_hf.corruptions import SEVERITIES, corrupt
from macs_hf.evaluation import compare_corruptions, evaluate_corruptions
from macs_hf.evaluation.corruption_benchmark import spread_assignment, standard_error
from macs_hf.metrics import paired_difference
from macs_hf.report.rows import NOT_MEASURED, SampleRows

from .corruption_examples import assert_same_rows, forward, images, labelled


THREE = {"corruptions": ("gaussian_noise", "contrast", "saturate"), "design": "spread", "progress": False}


def test_the_assignment_is_balanced_over_classes_and_in_all() -> None:
    labels = np.repeat(np.arange(7), [40, 3, 57, 100, 1, 19, 200])
    assigned = spread_assignment(labels, 19, seed=4)
    counts = np.array([np.bincount(assigned[labels == label], minlength=19) for label in range(7)])
    assert np.ptp(counts, axis=1).max() <= 1
    assert np.ptp(counts.sum(axis=0)) <= 1
    assert np.array_equal(assigned, spread_assignment(labels.tolist(), 19, seed=4))
    assert not np.array_equal(assigned, spread_assignment(labels, 19, seed=5))
    assert spread_assignment(labels, 19, seed=-1).max() == 18


def test_every_image_is_equally_likely_to_get_each_corruption() -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 2])
    drawn = np.stack([spread_assignment(labels, 3, seed) for seed in range(3000)])
    shares = np.stack([(drawn == corruption).mean(axis=0) for corruption in range(3)])
    assert np.abs(shares - 1 / 3).max() < 4 * math.sqrt(2 / 9 / 3000)


def test_each_image_is_seen_under_its_corruption_at_all_severities() -> None:
    table = evaluate_corruptions(forward, labelled(), seed=3, batch_size=4, temperature=2.0, **THREE)
    labels, assigned = torch.arange(30) % 3, spread_assignment(torch.arange(30) % 3, 3, seed=3)
    assert (table.design, table.seed, table.n, table.clean.n) == ("spread", 3, 30, 30)
    for number, name in enumerate(THREE["corruptions"]):
        mine = np.flatnonzero(assigned == number)
        hits = np.zeros(len(mine), int)
        for severity in SEVERITIES:
            logits = forward(corrupt(images()[mine], name, severity, seed=3, indices=mine))
            right, cell = logits.argmax(1) == labels[mine], table.cells[name][severity]
            hits += right.numpy()
            assert (cell.n, cell.accuracy) == (10, right.double().mean())
            nll = torch.nn.functional.cross_entropy(logits, labels[mine])
            assert cell.nll == pytest.approx(float(nll), rel=1e-5)
        assert table.rows.hits[mine, number].tolist() == hits.tolist()
    assert ((table.rows.hits != NOT_MEASURED).sum(axis=1) == 1).all()
    assert (np.isnan(table.rows.nll) == (table.rows.hits == NOT_MEASURED)).all()
    assert np.isfinite(table.rows.scaled_nll[table.rows.hits != NOT_MEASURED]).all()


def test_each_image_is_read_once_and_clean_results_are_not_measured_again() -> None:
    class Counted(list):
        reads = 0

        def __getitem__(self, position: int) -> tuple[Tensor, int]:
            self.reads += 1
            return super().__getitem__(position)

    passes = 0

    def counted(batch: Tensor) -> Tensor:
        nonlocal passes
        passes += len(batch)
        return forward(batch)

    logits, labels = forward(images()), torch.arange(30) % 3
    rows = [SampleRows.from_logits(logits / temperature, labels) for temperature in (1.0, 2.0)]
    data = Counted(labelled())
    table = evaluate_corruptions(counted, data, temperature=2.0, clean_rows=rows, samples=20, **THREE)
    assert (data.reads, passes) == (20, 20 * 5)
    whole = evaluate_corruptions(counted, Counted(labelled()), temperature=2.0, samples=20, **THREE)
    assert passes == 20 * 5 + 20 * 6
    assert_same_rows(table, whole)
    assert vars(table.clean) == pytest.approx(vars(whole.clean), rel=1e-6)


def test_the_default_is_spread_from_100_images_a_corruption() -> None:
    options = {"corruptions": ("contrast",), "severities": (1,), "progress": False}
    for count, samples, design in ((1899, None, "crossed"), (1900, None, "spread"), (1900, 60, "crossed")):
        data = (labelled(30) * 64)[:count]
        assert evaluate_corruptions(forward, data, samples=samples, **options).design == design


def test_what_cannot_be_spread_is_named() -> None:
    with pytest.raises(ValueError, match=r"at least two images for each of the 3 corruptions.*5 in all.*crossed"):
        evaluate_corruptions(forward, labelled(5), **THREE)
    for option in ("design", "when"):
        with pytest.raises(ValueError, match=f"{option}='latin'"):
            evaluate_corruptions(forward, labelled(), **THREE | {option: "latin"})


def test_tables_of_other_images_are_not_compared() -> None:
    spread = evaluate_corruptions(forward, labelled(), **THREE)
    other = evaluate_corruptions(forward, [(image, 1) for image, _ in labelled()], **THREE)
    with pytest.raises(ValueError, match="NaN"):
        compare_corruptions(spread, other, [["contrast"]])


def test_the_standard_error_of_a_spread_mean_is_that_of_independent_groups() -> None:
    results = np.full((7, 2), np.nan)
    results[:3, 0], results[3:, 1] = [0.2, 0.4, 0.9], [0.0, 1.0, 0.6, 0.2]
    expected = math.sqrt(np.var([0.2, 0.4, 0.9], ddof=1) / 3 + np.var([0.0, 1.0, 0.6, 0.2], ddof=1) / 4) / 2
    assert standard_error(results) == pytest.approx(expected)
    assert standard_error(results[:4]) is None


def population(seed: int, count: int = 20_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, and the results of two related models: images, classes and corruptions differ in how hard they are."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    hard = rng.normal(0, 1, 10)[labels, None] + rng.normal(0, 1, (count, 1)) + rng.normal(0, 1, (1, 19))
    models = []
    for shift in (0.0, 0.3):
        logit = 0.5 + shift + hard + rng.normal(0, 0.5, (count, 19))
        models.append(rng.binomial(5, 1 / (1 + np.exp(-logit))) / 5)
    return labels, *models


@pytest.mark.parametrize(("design", "draw"), [("crossed", 100), ("spread", 380)])
def test_means_are_unbiased_and_intervals_cover(design: str, draw: int) -> None:
    labels, a, b = population(0)
    rng, weights = np.random.default_rng(1), np.full(15, 1 / 15)
    truth, gain = a[:, :15].mean(), (b - a)[:, :15].mean()
    means, differences, covered, covered_difference = [], [], [], []
    for repeat in range(500):
        picked = rng.choice(len(labels), draw, replace=False)
        seen = np.ones((draw, 19), bool)
        if design == "spread":
            seen = spread_assignment(labels[picked], 19, seed=repeat)[:, None] == np.arange(19)
        of_a, of_b = (np.where(seen, model[picked], np.nan)[:, :15] for model in (a, b))
        means.append(np.nanmean(of_a, axis=0).mean())
        covered.append(abs(means[-1] - truth) < 1.96 * standard_error(of_a))
        found = paired_difference(of_b[None], of_a[None], weights=weights)
        differences.append(found.difference)
        covered_difference.append(found.low < gain < found.high)
    for values, expected in ((means, truth), (differences, gain)):
        assert abs(np.mean(values) - expected) < 3 * np.std(values) / math.sqrt(500)
    assert 0.92 < np.mean(covered) < 0.98 and 0.92 < np.mean(covered_difference) < 0.98
