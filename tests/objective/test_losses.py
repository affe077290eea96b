"""Losses against hand-computed values, closed forms, numerical gradients and properties that hold for all logits."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from macs_hf.objective.losses import (
    consistency_loss,
    focal_loss,
    jensen_shannon,
    logit_margin,
    macs_loss,
    margin_loss,
    mbls_penalty,
)


LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "margin": lambda one, two, labels: margin_loss(one, labels, 1.5),
    "consistency": lambda one, two, labels: consistency_loss(one, two),
    "focal": lambda one, two, labels: focal_loss(one, labels, 2.0),
    "focal_root": lambda one, two, labels: focal_loss(one, labels, 0.5),
    "mbls": lambda one, two, labels: mbls_penalty(one, 0.7),
    "jensen_shannon": lambda one, two, labels: jensen_shannon([one, two, two.flip(-1)]),
    "macs": lambda one, two, labels: macs_loss(one, labels, two, lambda_mbls=0.1, mbls_margin=0.5).loss,
}


@st.composite
def views(draw: st.DrawFn, count: int = 2, scale: float = 30.0) -> tuple[list[Tensor], Tensor]:
    """`count` logit tensors of one shape, half of their entries on a grid so that ties occur; and labels."""
    rows, classes = draw(st.integers(1, 5)), draw(st.integers(2, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    spread = draw(st.floats(0.01, scale))
    logits = torch.randn(count, rows, classes, generator=generator, dtype=torch.float64) * spread
    coarse = torch.rand(logits.shape, generator=generator) < 0.5
    return list(torch.where(coarse, logits.round(), logits)), torch.randint(classes, (rows,), generator=generator)


# ---- Values by hand ----


def test_margin_by_hand() -> None:
    logits = torch.tensor([[3.0, 1.0, 0.0], [0.0, 2.0, 5.0], [1.0, 1.0, 0.0], [2.0, 1.0, -7.0]])
    labels = torch.tensor([0, 1, 0, 0])
    assert logit_margin(logits, labels).tolist() == [2.0, -3.0, 0.0, 1.0]
    # Hinges at margin 1: 0, 4, 1 (a tie), 0 (exactly at the margin).
    assert margin_loss(logits, labels).item() == (0 + 16 + 1 + 0) / 4
    assert margin_loss(logits, labels, margin=3.0).item() == (1 + 36 + 9 + 4) / 4


def test_gradient_of_the_margin_by_hand() -> None:
    logits = torch.tensor([[1.0, 0.5, 0.0], [2.0, 1.0, 0.0], [0.0, 1.0, 1.0]], requires_grad=True)
    margin_loss(logits, torch.tensor([0, 0, 0])).backward()
    # 2 * hinge / 3 on label and runner-up: hinges 0.5, 0 (at the margin), 2; runners-up that tie share.
    expected = torch.tensor([[-1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [-4.0, 2.0, 2.0]]) / 3
    torch.testing.assert_close(logits.grad, expected)


def test_consistency_by_hand() -> None:
    clean, perturbed = torch.tensor([[0.75, 0.25], [0.5, 0.5]]), torch.tensor([[0.5, 0.5], [0.9, 0.1]])
    first = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    second = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)
    assert consistency_loss(clean.log(), perturbed.log()).item() == pytest.approx((first + second) / 2, rel=1e-6)
    backwards = consistency_loss(perturbed.log(), clean.log()).item()
    assert backwards != pytest.approx((first + second) / 2, rel=1e-2)


def test_both_sides_of_the_kl_have_the_closed_form_gradient() -> None:
    clean, perturbed = torch.randn(2, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    clean, perturbed = clean.requires_grad_(), perturbed.requires_grad_()
    consistency_loss(clean, perturbed).backward()
    p, q = clean.detach().softmax(-1), perturbed.detach().softmax(-1)
    log_ratio = (p / q).log()
    divergence = (p * log_ratio).sum(-1, keepdim=True)
    torch.testing.assert_close(perturbed.grad, (q - p) / 4)
    torch.testing.assert_close(clean.grad, p * (log_ratio - divergence) / 4)
    assert clean.grad.abs().max() > 1e-3


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 3.0])
def test_focal_by_hand(gamma: float) -> None:
    p = torch.tensor([[0.9, 0.1], [0.2, 0.8]], dtype=torch.float64)
    expected = -((1 - 0.9) ** gamma * math.log(0.9) + (1 - 0.2) ** gamma * math.log(0.2)) / 2
    assert focal_loss(p.log(), torch.tensor([0, 0]), gamma).item() == pytest.approx(expected, rel=1e-12)


def test_mbls_by_hand() -> None:
    # Excess over the allowed gap of 10: 5 and 0; 0 and 0 (exactly 10); mean over rows and classes.
    assert mbls_penalty(torch.tensor([[15.0, 0.0], [4.0, -6.0]])).item() == 5 / 4
    assert mbls_penalty(torch.tensor([[1.0, 2.0, 4.0]]), margin=1.0).item() == pytest.approx((2 + 1 + 0) / 3)


def test_jensen_shannon_by_hand() -> None:
    p, q = torch.tensor([[0.5, 0.5]], dtype=torch.float64), torch.tensor([[0.9, 0.1]], dtype=torch.float64)
    m = (p + q) / 2
    expected = ((p * (p / m).log()).sum() + (q * (q / m).log()).sum()) / 2
    torch.testing.assert_close(jensen_shannon([p.log(), q.log()]), expected)


@pytest.mark.parametrize("views_count", [2, 3, 4])
def test_jensen_shannon_of_disjoint_predictions_is_its_bound(views_count: int) -> None:
    logits = torch.eye(views_count, dtype=torch.float64) * 1e4
    value = jensen_shannon([row[None] for row in logits])
    assert value.item() == pytest.approx(math.log(views_count), rel=1e-12)


# ---- The objective ----


def test_label_smoothing_is_its_closed_form() -> None:
    logits, labels = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 3, 0, 1])
    parts = macs_loss(logits, labels, lambda_margin=0, lambda_consistency=0, label_smoothing_factor=0.1)
    log_p = logits.log_softmax(-1)
    expected = -(0.9 * log_p[torch.arange(6), labels] + 0.1 * log_p.mean(-1)).mean()
    torch.testing.assert_close(parts.loss, expected)


def test_class_weights_by_hand() -> None:
    weights, labels = (0.5, 2.0, 1.0), torch.tensor([0, 1, 2, 1, 0, 0])
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    settings = {"lambda_consistency": 0, "class_weights": weights}
    w, log_p = torch.tensor(weights)[labels], logits.log_softmax(1)
    p = log_p.exp()[range(6), labels]
    loss = macs_loss(logits, labels, **settings)
    torch.testing.assert_close(loss.cross_entropy_loss, -(w * p.log()).mean())
    torch.testing.assert_close(loss.margin_loss, (w * (1 - logit_margin(logits, labels)).clamp(min=0) ** 2).mean())
    focal = macs_loss(logits, labels, lambda_margin=0, focal_gamma=2.0, **settings)
    torch.testing.assert_close(focal.loss, -(w * (1 - p) ** 2 * p.log()).mean())
    soft = torch.full((6, 3), 0.1).scatter(1, labels[:, None], 0.8)
    mixed = macs_loss(logits, soft, lambda_margin=0, **settings)
    torch.testing.assert_close(mixed.loss, -((soft @ torch.tensor(weights)) * (soft * log_p).sum(1)).mean())


def test_mixed_labels_interpolate_the_loss() -> None:
    logits, labels = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 3, 0, 1])
    soft = 0.3 * F.one_hot(labels, 4) + 0.7 * F.one_hot(labels.roll(1), 4)
    parts = macs_loss(logits, soft, lambda_margin=0, lambda_consistency=0)
    expected = 0.3 * F.cross_entropy(logits, labels) + 0.7 * F.cross_entropy(logits, labels.roll(1))
    torch.testing.assert_close(parts.loss, expected)
    assert parts.logit_margin is None


def test_objective_is_the_weighted_sum_of_its_parts() -> None:
    one, two, three = torch.randn(3, 8, 5, generator=torch.Generator().manual_seed(1)) * 8
    labels = torch.arange(8) % 5
    parts = macs_loss(
        one, labels, two, augmix_logits=[two, three], lambda_margin=0.2, margin=2.0, lambda_consistency=0.7,
        lambda_jsd=12.0, lambda_mbls=0.3, mbls_margin=4.0, focal_gamma=2.0,
    )  # fmt: skip
    assert parts.cross_entropy_loss == focal_loss(one, labels, 2.0)
    assert parts.margin_loss == margin_loss(one, labels, 2.0)
    assert parts.consistency_loss == consistency_loss(one, two)
    assert parts.jensen_shannon_loss == jensen_shannon([one, two, three])
    assert parts.mbls_loss == mbls_penalty(one, 4.0)
    assert parts.logit_margin == logit_margin(one, labels).mean()
    assert parts.logits is one
    recombined = (
        parts.cross_entropy_loss
        + 0.2 * parts.margin_loss
        + 0.7 * parts.consistency_loss
        + 12.0 * parts.jensen_shannon_loss
        + 0.3 * parts.mbls_loss
    )
    torch.testing.assert_close(parts.loss, recombined)


def test_zero_weights_are_bitwise_cross_entropy_and_leave_out_the_parts() -> None:
    logits, labels = torch.randn(8, 5, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 5
    parts = macs_loss(logits, labels, lambda_margin=0, lambda_consistency=0)
    assert parts.loss == F.cross_entropy(logits, labels)
    assert (parts.margin_loss, parts.consistency_loss, parts.jensen_shannon_loss, parts.mbls_loss) == (None,) * 4
    assert parts.logit_margin == logit_margin(logits, labels).mean()


def test_perturbed_rows_name_their_clean_partners() -> None:
    one, two = torch.randn(2, 8, 5, generator=torch.Generator().manual_seed(1))
    rows = torch.tensor([6, 0, 3])
    parts = macs_loss(one, torch.arange(8) % 5, two[rows], perturbed_rows=rows)
    assert parts.consistency_loss == consistency_loss(one[rows], two[rows])


def test_two_view_cross_entropy_is_the_mean_over_both_views() -> None:
    one, two = torch.randn(2, 8, 5, generator=torch.Generator().manual_seed(1))
    labels, rows = torch.arange(8) % 5, torch.tensor([6, 0, 3])
    weights = {"lambda_margin": 0, "lambda_consistency": 0, "two_view_cross_entropy": True}
    parts = macs_loss(one, labels, two, **weights)
    expected = (F.cross_entropy(one, labels) + F.cross_entropy(two, labels)) / 2
    torch.testing.assert_close(parts.loss, expected)
    assert parts.loss is parts.cross_entropy_loss and parts.consistency_loss is None
    some = macs_loss(one, labels, two[rows], perturbed_rows=rows, **weights)
    expected = (F.cross_entropy(one, labels) + F.cross_entropy(two[rows], labels[rows])) / 2
    torch.testing.assert_close(some.loss, expected)
    appended = macs_loss(one, labels, two[rows], perturbed_rows=rows, perturbed_share=3 / 11, **weights)
    expected = F.cross_entropy(torch.cat([one, two[rows]]), torch.cat([labels, labels[rows]]))
    torch.testing.assert_close(appended.loss, expected)
    smooth = macs_loss(one, labels, two, label_smoothing_factor=0.1, **weights)
    expected = sum(F.cross_entropy(view, labels, label_smoothing=0.1) for view in (one, two)) / 2
    torch.testing.assert_close(smooth.loss, expected)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([-1, 0]), "Label -1 of row 0"),
        (torch.tensor([0.0, 1.5]), "float32"),
        (torch.tensor([[1.0, 1.0, 0.0]] * 2), "one class .*per image"),  # several classes at once
        (torch.tensor([[1, 1, 0]] * 2), "One class per image"),
        (torch.tensor([[1.5, -0.5, 0.0]] * 2), "-0.5"),
        (torch.ones(2, 2) / 2, "3 classes"),
    ],
)
def test_labels_that_are_neither_classes_nor_probabilities(labels: torch.Tensor, message: str) -> None:
    logits = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=message):
        macs_loss(logits, labels, logits, lambda_margin=0)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"lambda_margin": math.nan}, "lambda_margin=nan"),
        ({}, "perturbed_logits"),
        ({"lambda_consistency": 0, "lambda_jsd": 12.0}, "augmix_logits"),
        ({"lambda_consistency": 0, "labels": torch.full((2, 3), 1 / 3)}, "soft"),
        ({"lambda_consistency": 0, "logits": torch.zeros(2, 1), "labels": torch.tensor([0, 0])}, "two classes"),
    ],
)
def test_weights_without_meaning_and_missing_views_are_refused(weights: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        macs_loss(**{"logits": torch.zeros(2, 3), "labels": torch.tensor([0, 1])} | weights)


# ---- Gradients and precision ----


@pytest.mark.parametrize("name", LOSSES)
def test_gradcheck(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    one, two = torch.randn(2, 3, 3, dtype=torch.float64, generator=generator).unbind()
    labels = torch.randint(3, (3,), generator=generator)
    assert torch.autograd.gradcheck(
        lambda one, two: LOSSES[name](one, two, labels) + 0 * two.sum(), (one.requires_grad_(), two.requires_grad_())
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LOSSES)
def test_finite_at_extreme_logits(name: str, dtype: torch.dtype) -> None:
    extremes = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4], [1e4, 1e4, 1e4], [0.0, 0.0, 1e-4]], dtype=dtype)
    for label in range(3):
        one, two = extremes.clone().requires_grad_(), extremes.flip(0, 1).requires_grad_()
        value = LOSSES[name](one, two, torch.full((4,), label))
        value.backward()
        assert value.isfinite() and value.dtype == (dtype if dtype == torch.float64 else torch.float32)
        for logits in (one, two):
            assert logits.grad is None or (logits.grad.isfinite().all() and logits.grad.dtype == dtype)


# ---- Properties ----


@settings(max_examples=30, deadline=None)
@given(views(1), st.floats(0.1, 20.0))
def test_margin_loss_is_zero_iff_all_gaps_reach_the_margin(drawn: tuple[list[Tensor], Tensor], margin: float) -> None:
    (logits,), labels = drawn
    gaps = [
        row[label] - max(other for k, other in enumerate(row) if k != label)
        for row, label in zip(logits.tolist(), labels.tolist(), strict=True)
    ]
    assert logit_margin(logits, labels).tolist() == gaps
    assert (margin_loss(logits, labels, margin).item() == 0) == all(gap >= margin for gap in gaps)


@settings(max_examples=30, deadline=None)
@given(views(2))
def test_kl_is_zero_on_equal_views_and_obeys_pinsker(drawn: tuple[list[Tensor], Tensor]) -> None:
    (one, two), _ = drawn
    assert consistency_loss(one, one).item() == 0
    assert consistency_loss(one.float(), one.float()).item() == 0
    for clean, perturbed in zip(one, two, strict=True):
        total_variation = 0.5 * (clean.softmax(-1) - perturbed.softmax(-1)).abs().sum()
        assert consistency_loss(clean[None], perturbed[None]) >= 2 * total_variation**2 - 1e-12


@settings(max_examples=30, deadline=None)
@given(views(3))
def test_jensen_shannon_is_symmetric_and_bounded(drawn: tuple[list[Tensor], Tensor]) -> None:
    (one, two, three), _ = drawn
    value = jensen_shannon([one, two, three])
    assert -1e-12 <= value.item() <= math.log(3) + 1e-12
    for order in ([two, one, three], [three, two, one], [two, three, one]):
        torch.testing.assert_close(jensen_shannon(order), value, rtol=1e-9, atol=1e-12)
    assert abs(jensen_shannon([one, one, one]).item()) < 1e-12


@settings(max_examples=30, deadline=None)
@given(views(2, scale=1e4), st.sampled_from(sorted(LOSSES)), st.sampled_from([torch.float32, torch.bfloat16]))
def test_losses_are_finite_and_not_negative(drawn: tuple[list[Tensor], Tensor], name: str, dtype: torch.dtype) -> None:
    (one, two), labels = drawn
    one, two = one.to(dtype).requires_grad_(), two.to(dtype).requires_grad_()
    value = LOSSES[name](one, two, labels)
    value.backward()
    assert value.isfinite() and value >= -1e-6
    assert one.grad.isfinite().all() and (two.grad is None or two.grad.isfinite().all())
