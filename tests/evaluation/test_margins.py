"""Margins and sensitivity against closed forms of linear models, bounds, and invariance to batching."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from macs_hf.evaluation.margins import analyze_margins, spectral_complexity


SHAPE = (3, 4, 4)
SIZE = math.prod(SHAPE)


def linear(weight: Tensor, bias: Tensor | float = 0.0):
    return lambda images: images.flatten(1).double() @ weight.double().T + bias


def data(count: int, classes: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, *SHAPE, generator=generator), torch.randint(classes, (count,), generator=generator)


def batched(images: Tensor, labels: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(images.split(size), labels.split(size), strict=True))


def test_logit_statistics_by_hand() -> None:
    logits = torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, -2.0], [5.0, 1.0, 1.0]])
    labels = torch.tensor([1, 2, 0])  # margins 1, -2, 4
    images = torch.zeros(3, *SHAPE)
    result = analyze_margins(lambda _: logits, [(images, labels)], num_draws=2)
    assert result.num_samples == 3
    assert result.logit_norm == pytest.approx((5 + 2 + math.sqrt(27)) / 3)
    assert result.max_logit == pytest.approx((4 + 0 + 5) / 3)
    assert result.margin == pytest.approx(1.0)
    assert result.margin_share == pytest.approx(1 / 3)  # a margin of exactly 1 does not exceed 1
    # The model ignores its input: no sensitivity, and no change of class as far as the noise reached.
    assert result.logit_sensitivity == result.probability_sensitivity == result.consistency == 0
    assert result.margin_to_sensitivity is None
    assert 0 < result.radius_estimate == result.radius_estimate_lipschitz


@pytest.mark.parametrize("sigma", [0.01, 0.1, 1.0])
def test_one_direction_gives_the_mean_of_a_known_distribution(sigma: float) -> None:
    # Two logits +-a u.x with a unit vector u: the change over ||e|| is a |cos(u, e)|, whatever sigma. Over the sphere
    # in d dimensions, E|cos| = Gamma(d/2) / (sqrt(pi) Gamma((d+1)/2)).
    a, direction = 2.0, nn.functional.normalize(torch.ones(SIZE), dim=0)
    weight = torch.stack([a * direction, -a * direction])
    images, _ = data(400)
    labels = linear(weight)(images).argmax(1)
    result = analyze_margins(linear(weight), batched(images, labels, 100), sigma=sigma, num_draws=20)
    mean_cosine = math.exp(math.lgamma(SIZE / 2) - math.lgamma((SIZE + 1) / 2)) / math.sqrt(math.pi)
    assert result.logit_sensitivity == pytest.approx(a * mean_cosine, rel=0.03)
    assert result.logit_sensitivity_l2 == pytest.approx(math.sqrt(2) * result.logit_sensitivity, rel=1e-5)
    # Both logits move by the same amount in opposite directions, so the corollary's factor 2 is tight.
    assert result.radius_estimate == pytest.approx(result.radius_estimate_lipschitz, rel=1e-6)
    expected_margin = (2 * a * (images.flatten(1) @ direction).abs()).mean().item()
    assert result.margin == pytest.approx(expected_margin, rel=1e-5)
    assert result.margin_to_sensitivity == pytest.approx(result.margin / result.logit_sensitivity)


def test_the_radius_is_the_theorems_where_the_constant_is_the_true_one() -> None:
    # In one dimension every noise is +-|e|, so the estimated constant of a linear model is exact: the class changes at
    # a distance of |x|, and the estimate says so, up to the longest noise drawn.
    images = torch.tensor([0.01, 0.02, -0.03, 0.5]).view(-1, 1, 1, 1)
    labels = (images.flatten() < 0).long()

    def forward(x: Tensor) -> Tensor:
        return torch.cat([x.flatten(1), -x.flatten(1)], 1)

    for index, distance in enumerate([0.01, 0.02, 0.03]):
        one = (images[index : index + 1], labels[index : index + 1])
        assert analyze_margins(forward, [one], sigma=0.1).radius_estimate == pytest.approx(distance, rel=1e-5)
    far = analyze_margins(forward, [(images[3:], labels[3:])], sigma=0.1)
    assert 0.05 < far.radius_estimate < 0.5  # nothing is said beyond the noise
    wrong = analyze_margins(forward, [(images, 1 - labels)], sigma=0.1)
    assert wrong.radius_estimate == wrong.radius_estimate_lipschitz == 0
    assert wrong.margin < 0


def test_batching_does_not_change_the_result() -> None:
    images, labels = data(23)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 4)).double().eval()

    def analyze(size: int) -> dict[str, float]:
        found = analyze_margins(model, batched(images.double(), labels, size), num_draws=3)
        return {name: value for name, value in vars(found).items() if isinstance(value, float)}

    whole = analyze(23)
    assert analyze(23) == whole
    for size in (1, 5, 22):
        assert analyze(size) == pytest.approx(whole, rel=1e-9)


def test_inputs_and_the_global_generator_are_left_alone() -> None:
    images, labels = data(5)
    copies, state = (images.clone(), labels.clone()), torch.get_rng_state()
    analyze_margins(linear(torch.ones(4, SIZE)), [(images, labels)])
    assert torch.equal(images, copies[0])
    assert torch.equal(labels, copies[1])
    assert torch.equal(torch.get_rng_state(), state)


@settings(max_examples=40, deadline=None)
@given(
    scale=st.floats(0.01, 50),
    sigma=st.floats(0.01, 2),
    classes=st.integers(2, 6),
    seed=st.integers(0, 2**32 - 1),
)
def test_bounds(scale: float, sigma: float, classes: int, seed: int) -> None:
    images, labels = data(6, classes, seed)
    weight = scale * torch.randn(classes, SIZE, generator=torch.Generator().manual_seed(seed))
    result = analyze_margins(linear(weight), [(images, labels)], sigma=sigma, num_draws=3)
    slack = 1 + 1e-5
    # Pinsker per draw, and Jensen for their mean.
    assert 0 <= result.probability_sensitivity <= min(2, math.sqrt(2 * result.consistency)) * slack + 1e-7
    assert result.logit_sensitivity <= result.logit_sensitivity_l2 * slack
    assert result.logit_sensitivity_l2 <= math.sqrt(classes) * result.logit_sensitivity * slack
    assert result.logit_sensitivity_l2 <= torch.linalg.matrix_norm(weight, 2).item() * slack
    assert 0 <= result.radius_estimate_lipschitz <= result.radius_estimate * slack
    assert result.max_logit <= result.logit_norm * slack
    assert 0 <= result.margin_share <= 1


def test_spectral_complexity_by_hand() -> None:
    first, second = nn.Linear(3, 2, bias=False), nn.Conv2d(2, 4, 1, groups=2)
    first.weight.data = torch.tensor([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]])  # norms 4 and 5
    second.weight.data = torch.tensor([1.0, 2.0, 2.0, 0.0]).view(4, 1, 1, 1)  # blocks of norm sqrt(5) and 2, in all 3
    expected = math.log10(4 * math.sqrt(5)) + 1.5 * math.log10((5 / 4) ** (2 / 3) + (3 / math.sqrt(5)) ** (2 / 3))
    model = nn.Sequential(first, nn.BatchNorm1d(2), second)
    assert spectral_complexity(model) == pytest.approx(expected)
    first.weight.data *= 10  # the ratio of norms stays
    assert spectral_complexity(model) == pytest.approx(expected + 1)
    first.weight.data *= 0
    assert spectral_complexity(model) is None
    with pytest.raises(ValueError, match="ReLU has no"):
        spectral_complexity(nn.ReLU())
