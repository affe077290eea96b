"""Margins and sensitivity against closed forms of linear models, and invariance to batching."""

import math

import pytest
import torch
from torch import Tensor, nn

from macs_hf.evaluation.margins import analyze_margins


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
    assert result.logit_sensitivity == 0 and result.margin_to_sensitivity is None  # the model ignores its input


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
    expected_margin = (2 * a * (images.flatten(1) @ direction).abs()).mean().item()
    assert result.margin == pytest.approx(expected_margin, rel=1e-5)
    assert result.margin_to_sensitivity == pytest.approx(result.margin / result.logit_sensitivity)


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
