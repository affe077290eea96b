"""Measures of groups: closed forms, order, Holm's correction, exact tests, confusion, bad columns."""

import numpy as np
import pytest
from scipy import stats

from macs_hf.metrics import calibration_error, confusion_matrix, group_measures
from macs_hf.metrics.group_scores import holm
from macs_hf.metrics.intervals import noise_scores
from macs_hf.report.rows import SampleRows


def rows_of(label: np.ndarray, prediction: np.ndarray, confidence: np.ndarray) -> SampleRows:
    zeros = np.zeros(len(label), np.float32)
    label, prediction = (np.asarray(column, np.int32) for column in (label, prediction))
    return SampleRows(label, prediction, np.asarray(confidence, np.float32), zeros, zeros, zeros)


def simulated(accuracy: list[float], n: int, claim: float | None = None, seed: int = 0) -> SampleRows:
    """Class k is right with probability `accuracy[k]`, and claims that, or `claim`."""
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(len(accuracy)), n)
    chance = np.repeat(accuracy, n)
    prediction = np.where(rng.random(len(label)) < chance, label, (label + 1) % len(accuracy))
    return rows_of(label, prediction, chance if claim is None else np.full(len(label), claim))


def test_measures_are_those_of_the_images_of_a_group() -> None:
    rows = simulated([0.9, 0.5, 0.7], 200, claim=0.8)
    table = group_measures(rows, names=["cat", "dog", "fox"])
    assert table.column == "label" and [group.name for group in table.groups] == ["dog", "fox", "cat"]  # worst first
    for group, k in zip(table.groups, (1, 2, 0), strict=True):
        members = rows.label == k
        confidence, correct = rows.confidence[members].astype(float), rows.correct[members]
        assert (group.n, group.few) == (200, False)
        assert group.accuracy.value == pytest.approx(correct.mean())
        expected = stats.binomtest(int(correct.sum()), 200).proportion_ci(method="wilson")
        assert (group.accuracy.low, group.accuracy.high) == pytest.approx(tuple(expected))
        assert group.ece == pytest.approx(calibration_error(confidence, correct))
        assert group.noise_floor == pytest.approx(noise_scores(confidence).mean())
        assert group.gap.value == pytest.approx(0.8 - correct.mean())
        assert (group.gap.low, group.gap.high) == pytest.approx((0.8 - expected.high, 0.8 - expected.low), abs=1e-6)
        assert group.ece == pytest.approx(abs(group.gap.value))  # one confidence, one bin
    assert [group.significant for group in table.groups] == [True, False, True]  # fox is near the mean
    assert [group.gap_significant for group in table.groups] == [True, True, False]  # cat: 4 points may be chance


def test_coverage_of_sets_in_each_group() -> None:
    rows = simulated([0.9, 0.5, 0.7], 200, claim=0.8)
    covered = np.concatenate([np.arange(200) < held for held in (199, 150, 180)])
    table = group_measures(rows, names=["cat", "dog", "fox"], covered=covered, guaranteed_coverage=0.9)
    assert table.guaranteed_coverage == 0.9
    found = {group.name: group for group in table.groups}
    for name, held in (("cat", 199), ("dog", 150), ("fox", 180)):
        expected = stats.binomtest(held, 200).proportion_ci(method="wilson")
        assert found[name].coverage.value == held / 200
        assert (found[name].coverage.low, found[name].coverage.high) == pytest.approx(tuple(expected))
        others = [int(covered.sum()) - held, 400]
        p = stats.fisher_exact([[held, 200 - held], [others[0], others[1] - others[0]]]).pvalue
        assert found[name].coverage_significant == (p < 0.05 / 3)
    assert [found[name].coverage_significant for name in ("cat", "dog", "fox")] == [True, True, False]
    assert group_measures(rows).groups[0].coverage is None


def test_equal_and_calibrated_groups_are_rarely_significant() -> None:
    """Of 60 tables with 10 groups each, about three may flag anything; without Holm's correction 24 would."""
    flagged, gap_flagged = 0, 0
    for seed in range(60):
        groups = group_measures(simulated([0.8] * 10, 50, seed=seed)).groups
        flagged += any(group.significant for group in groups)
        gap_flagged += any(group.gap_significant for group in groups)
    assert flagged <= 9 and gap_flagged <= 9


def test_holm_steps_down() -> None:
    assert holm(np.array([0.01, 0.04, 0.02, 0.9])).tolist() == [True, False, False, False]
    assert holm(np.array([0.01, 0.03, 0.015])).tolist() == [True, True, True]
    assert holm(np.array([0.03, 0.03])).tolist() == [False, False]  # 0.03 > 0.05 / 2, so the second is not tried


def test_few_images_do_not_make_the_worst_group() -> None:
    label = np.repeat([0, 1, 2], [2, 500, 500])
    prediction = np.where(label == 0, 1, label)
    prediction[2:252] = 2
    table = group_measures(rows_of(label, prediction, np.full(1002, 0.9)))
    assert [group.name for group in table.groups] == ["1", "0", "2"]
    assert [group.few for group in table.groups] == [False, True, False]


@pytest.mark.parametrize(
    "groups",
    [np.array([7, 7, 3, 3]), ["b", "b", "a", "a"], np.array([7.0, 7.0, 3.0, 3.0]), [True, True, False, False]],
)
def test_any_column_of_numbers_or_text(groups) -> None:
    rows = rows_of([0, 1, 0, 1], [0, 1, 1, 0], [0.9] * 4)
    table = group_measures(rows, groups, column="camera")
    assert table.column == "camera" and [group.accuracy.value for group in table.groups] == [0, 1]
    assert [group.name for group in table.groups] in (["3", "7"], ["a", "b"], ["False", "True"])


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.arange(1500), "camera has 1500 "),
        ([None] + ["a"] * 1499, "camera .* 1 of 1500 .* number 0"),
        (np.ma.masked_equal(np.arange(1500) % 3, 2), "camera .* 500 of 1500 .* number 2"),
        (np.full(1500, 0.5), "camera"),
    ],
)
def test_bad_columns(groups, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        group_measures(simulated([0.5, 0.5, 0.5], 500), groups, column="camera")
    with pytest.raises(ValueError, match="names"):
        group_measures(simulated([0.5, 0.5, 0.5], 5), names=["cat", "dog"])


def test_confusion_matrix() -> None:
    rows = rows_of([0, 0, 2, 2, 2], [0, 2, 2, 0, 0], [0.9] * 5)
    found = confusion_matrix(rows)
    assert found.to_array().tolist() == [[1, 0, 1], [0, 0, 0], [2, 0, 1]]
    assert (found.label, found.prediction, found.count) == ((0, 0, 2, 2), (0, 2, 0, 2), (1, 1, 2, 1))
    assert confusion_matrix(rows, 5).to_array().shape == (5, 5)
    with pytest.raises(ValueError, match="n_classes=2"):
        confusion_matrix(rows, 2)


def test_a_few_errors_of_sure_answers_are_tested_exactly() -> None:
    """Three errors in 50 answers of 99 %: a chance of 1 in 72, where a normal law, 3.6 deviations, says 1 in 5,000."""
    label = np.repeat([0, 1], 50)
    wrong = (np.arange(100) % 50) < np.where(label == 0, 3, 0)
    table = group_measures(rows_of(label, np.where(wrong, 1 - label, label), np.full(100, 0.99)))
    sure = {group.name: group for group in table.groups}
    expected = 2 * stats.binom.sf(2, 50, 0.01)
    assert 0.025 < expected < 0.05 and not sure["0"].gap_significant  # 0.028, corrected for two groups
