"""Risk and coverage: closed forms, torch-uncertainty's definition, ties, the jackknife, intervals."""

import numpy as np
import pytest

from macs_hf.metrics import risk_coverage, selective
from macs_hf.metrics.selective import aurc_without_each
from macs_hf.report.rows import SampleRows


def rows_of(confidence: np.ndarray, correct: np.ndarray) -> SampleRows:
    zeros = np.zeros(len(confidence), np.float32)
    label = np.zeros(len(confidence), np.int32)
    return SampleRows(label, (~np.asarray(correct)).astype(np.int32), np.float32(confidence), zeros, zeros, zeros)


def area(confidence: np.ndarray, correct: np.ndarray) -> float:
    """The definition: trapezoids under the risk of the k most confident, over coverages from 1 / n to 1."""
    wrong = ~correct[np.argsort(-confidence, kind="stable")]
    n = len(wrong)
    risk = np.cumsum(wrong) / np.arange(1, n + 1)
    return float(np.trapezoid(risk, np.arange(1, n + 1) / n) / (1 - 1 / n))


def random_answers(seed: int, n: int, levels: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence = rng.permutation(n) / n if levels is None else rng.integers(1, levels + 1, n) / levels
    return confidence, rng.random(n) < 0.3 + 0.6 * confidence


def test_closed_forms() -> None:
    """Errors at the ranks 2 and 4 of 4: risks 0, 1/2, 1/3, 1/2. The best order has them last: 0, 0, 1/3, 1/2."""
    found = risk_coverage(rows_of(np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, False, True, False])))
    assert found.aurc.value == pytest.approx((0 / 2 + 1 / 2 + 1 / 3 + 1 / 4) / 3)
    assert found.excess_aurc.value == pytest.approx(found.aurc.value - (1 / 3 + 1 / 4) / 3)
    assert {risk: c.value for risk, c in found.coverage_at_risk.items()} == {"1%": 0.25, "5%": 0.25, "10%": 0.25}
    assert (found.coverage, found.risk) == ((0.25, 0.5, 0.75, 1.0), pytest.approx((0, 1 / 2, 1 / 3, 1 / 2)))


def test_values_of_torch_uncertainty() -> None:
    """`AURC` and `CovAtxRisk` of torch-uncertainty 0.13.0 on these 200 answers."""
    confidence, correct = random_answers(0, 200)
    found = risk_coverage(rows_of(confidence, correct), n_resamples=50)
    assert found.aurc.value == pytest.approx(area(confidence, correct))
    assert found.aurc.value == pytest.approx(0.290053876, abs=1e-8)
    assert found.coverage_at_risk["5%"].value == 0.055
    assert found.coverage_at_risk["10%"].value == 0.07


def test_of_equal_confidences_the_mean_over_orders_counts() -> None:
    confidence, correct = random_answers(1, 60, levels=4)
    rng = np.random.default_rng(0)
    areas = [area(confidence[order], correct[order]) for order in (rng.permutation(60) for _ in range(4000))]
    found = risk_coverage(rows_of(confidence, correct))
    assert found.aurc.value == pytest.approx(np.mean(areas), abs=4 * np.std(areas) / np.sqrt(4000))
    # Coverages are of thresholds that exist.
    assert set(found.coverage) == {float((confidence >= c).mean()) for c in np.unique(confidence)}
    order = rng.permutation(60)
    assert risk_coverage(rows_of(confidence[order], correct[order])).aurc.value == pytest.approx(found.aurc.value)


@pytest.mark.parametrize("levels", [None, 1, 3])
def test_the_jackknife_leaves_out_one_at_a_time(levels: int | None) -> None:
    confidence, correct = random_answers(2, 30, levels)
    (whole, without), (excess, excess_without) = aurc_without_each(confidence, correct)
    found = risk_coverage(rows_of(confidence, correct), n_resamples=2)
    assert (whole, excess) == pytest.approx((found.aurc.value, found.excess_aurc.value))
    for i in range(30):
        kept = np.arange(30) != i
        less = risk_coverage(rows_of(confidence[kept], correct[kept]), n_resamples=2)
        assert (without[i], excess_without[i]) == pytest.approx((less.aurc.value, less.excess_aurc.value), abs=1e-12)


def test_intervals_have_the_width_of_the_jackknife() -> None:
    confidence, correct = random_answers(3, 800)
    found = risk_coverage(rows_of(confidence, correct))
    (_, without), _ = aurc_without_each(confidence, correct)
    error = np.sqrt(799 / 800 * ((without - without.mean()) ** 2).sum())
    assert found.aurc.high - found.aurc.low == pytest.approx(2 * 1.96 * error, rel=0.1)
    for interval in (found.aurc, found.excess_aurc, *found.coverage_at_risk.values()):
        assert 0 <= interval.low <= interval.value <= interval.high <= 1
    assert found == risk_coverage(rows_of(confidence, correct))


@pytest.mark.parametrize("levels", [None, 40])
def test_neighbours_of_many_images_are_resampled_together(levels: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(*random_answers(4, 5000, levels))
    single = risk_coverage(rows)
    monkeypatch.setattr(selective, "MAX_STEPS", 500)
    merged = risk_coverage(rows)
    assert (merged.coverage, merged.risk) == (single.coverage, single.risk)
    assert len(merged.risk) == (100 if levels is None else 40) and merged.coverage[-1] == 1
    for one, other in zip(
        (single.aurc, single.excess_aurc, *single.coverage_at_risk.values()),
        (merged.aurc, merged.excess_aurc, *merged.coverage_at_risk.values()),
        strict=True,
    ):
        assert other.value == one.value
        assert (other.low, other.high) == pytest.approx((one.low, one.high), abs=0.15 * (one.high - one.low) + 2e-3)


def test_all_right_and_all_wrong() -> None:
    confidence = np.linspace(0.5, 1, 20)
    perfect, hopeless = (risk_coverage(rows_of(confidence, np.full(20, right))) for right in (True, False))
    assert (perfect.aurc.value, perfect.excess_aurc.value, perfect.coverage_at_risk["1%"].value) == (0, 0, 1)
    assert (hopeless.aurc.value, hopeless.excess_aurc.value) == (pytest.approx(1), pytest.approx(0, abs=1e-12))
    assert hopeless.coverage_at_risk["10%"].value == 0
    with pytest.raises(ValueError, match="at least two samples"):
        risk_coverage(rows_of(confidence[:1], np.array([True])))
