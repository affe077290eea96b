"""One batch under each method: which views reach the model, in how many passes, and what comes out."""

import itertools
import random
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms import v2

from macs_hf import METHODS, Objective, PixelStats, consistency_loss, jensen_shannon, macs_loss, perturb, supervise
from macs_hf.randomness import mix_seed


STATS = PixelStats((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


class Recorder(torch.nn.Module):
    """A small nonlinear classifier that keeps the batches it is given."""

    def __init__(self, size: int = 8) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(3 * size * size, tiny.NUM_LABELS).double()
        self.batches: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        self.batches.append(images)
        return self.layer(images.flatten(1)).sin() * 3


def batch(size: int = 8, side: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(size, 3, side, side, generator=generator, dtype=torch.float64)
    augmix = torch.randn(size, 2, 3, side, side, generator=generator, dtype=torch.float64)
    return images, torch.randint(tiny.NUM_LABELS, (size,), generator=generator), augmix


def run(model: Any, objective: Objective, seed: int | None = 1) -> Any:
    images, labels, augmix = batch()
    options = {"pixel_stats": STATS, "augmix_images": augmix, "num_labels": tiny.NUM_LABELS, "seed": seed}
    return supervise(model, images, labels, objective, **options)


VIEWS = dict.fromkeys(METHODS, 1) | {"augmix": 3, "macs_augmix": 4}
VIEWS |= dict.fromkeys(("consistency_only", "macs", "macs_pixel", "two_view_ce"), 2) | {"recommended": 1.25}


@pytest.mark.parametrize("method", METHODS)
def test_one_forward_pass_over_all_views(method: str) -> None:
    model = Recorder()
    parts = run(model, Objective(**METHODS[method]))
    assert [len(b) for b in model.batches] == [8 * VIEWS[method]]
    assert parts.logits.shape == (8, tiny.NUM_LABELS)
    parts.loss.backward()
    assert model.layer.weight.grad.isfinite().all()


@pytest.mark.parametrize("method", METHODS)
def test_draws_follow_the_seed_and_leave_the_global_generators_alone(method: str) -> None:
    objective = Objective(**METHODS[method])
    model = Recorder()
    python, numpy, cpu = random.getstate(), str(np.random.get_state()), torch.get_rng_state()
    first, again, other = (run(model, objective, seed).loss for seed in (1, 1, 2))
    assert random.getstate() == python and str(np.random.get_state()) == numpy
    assert torch.equal(torch.get_rng_state(), cpu)
    assert first == again
    assert (first != other) == (objective.uses_perturbation or objective.mixup_alpha > 0)


@pytest.mark.parametrize("settings", [{}, {"consistency_fraction": 0.5}, METHODS["macs_augmix"]])
def test_the_letter_of_algorithm_1_runs_each_view_apart(settings: dict[str, Any]) -> None:
    joint, apart = Recorder(), Recorder()
    one, two = run(joint, Objective(**settings)), run(apart, Objective(**settings, separate_views=True))
    assert len(joint.batches) == 1 and len(apart.batches) == (4 if "lambda_jsd" in settings else 2)
    assert torch.equal(torch.cat(apart.batches), joint.batches[0])
    torch.testing.assert_close(one.loss, two.loss, rtol=1e-12, atol=0)


def test_macs_is_the_loss_of_the_clean_and_the_perturbed_view() -> None:
    model, objective = Recorder(), Objective(perturbation_space="pixel", noise_std=0.05)
    images, labels, _ = batch()
    parts = run(model, objective, seed=9)
    view = perturb(images, objective, STATS, torch.Generator().manual_seed(9))
    assert torch.equal(model.batches[0], torch.cat([images, view]))
    torch.testing.assert_close(parts.loss, macs_loss(model(images), labels, model(view)).loss)


def test_perturbation_as_augmentation_replaces_the_clean_view() -> None:
    model, objective = Recorder(), Objective(**METHODS["perturb_augment"])
    images, labels, _ = batch()
    parts = run(model, objective, seed=9)
    view = perturb(images, objective, None, torch.Generator().manual_seed(9))
    assert torch.equal(model.batches[0], view)
    assert parts.loss == F.cross_entropy(model(view), labels) and parts.consistency_loss is None


def test_augmix_compares_the_three_views() -> None:
    model = Recorder()
    images, labels, augmix = batch()
    parts = run(model, Objective(**METHODS["augmix"]))
    clean, one, two = model(images), model(augmix[:, 0]), model(augmix[:, 1])
    expected = F.cross_entropy(clean, labels) + 12 * jensen_shannon([clean, one, two])
    torch.testing.assert_close(parts.loss, expected)


def test_mixup_is_torchvisions_under_the_same_seed() -> None:
    model = Recorder()
    images, labels, _ = batch()
    parts = run(model, Objective(**METHODS["mixup"] | {"mixup_alpha": 0.7}), seed=9)
    with torch.random.fork_rng():
        torch.manual_seed(mix_seed(9, 1))  # a stream of its own beside the perturbation's
        mixed, soft = v2.MixUp(alpha=0.7, num_classes=tiny.NUM_LABELS)(images, labels)
    assert torch.equal(model.batches[0], mixed) and not torch.equal(mixed, images)
    assert parts.loss == F.cross_entropy(model(mixed), soft)


def test_a_fraction_of_the_batch_is_an_unbiased_estimate() -> None:
    # A fixed blur makes T deterministic, so only the choice of rows is random: all pairs of four images.
    objective = Objective(consistency_fraction=0.5, perturbation="blur", blur_sigma_min=1.0, blur_sigma_max=1.0)
    model = Recorder()
    images, labels, _ = batch(4)
    view = perturb(images, objective)
    per_image = [consistency_loss(model(i[None]), model(v[None])).item() for i, v in zip(images, view, strict=True)]
    drawn = [supervise(model, images, labels, objective, seed=mix_seed(0, trial)) for trial in range(600)]
    pairs = {tuple(pair): sum(pair) / 2 for pair in itertools.combinations(per_image, 2)}
    found = [min(pairs.values(), key=lambda known: abs(known - parts.consistency_loss.item())) for parts in drawn]
    assert [parts.consistency_loss.item() for parts in drawn] == pytest.approx(found, abs=1e-12)
    full = supervise(model, images, labels, Objective(**vars(objective) | {"consistency_fraction": 1.0}), seed=0)
    assert full.consistency_loss.item() == pytest.approx(sum(per_image) / 4, rel=1e-12)
    # Each pair as often as the others, within four standard errors: so the mean over draws is the full term.
    for known in pairs.values():
        assert abs(found.count(known) - 600 / 6) < 4 * (600 * 5 / 36) ** 0.5


@pytest.mark.parametrize(("fraction", "rows"), [(0.25, 2), (0.5, 4), (0.01, 1), (0.99, 8), (1.0, 8)])
def test_a_fraction_costs_its_share_of_the_second_view(fraction: float, rows: int) -> None:
    model = Recorder()
    run(model, Objective(consistency_fraction=fraction))
    assert len(model.batches[0]) == 8 + rows
    run(model, Objective(**METHODS["perturb_augment"] | {"augment_fraction": fraction}))  # in place
    assert (model.batches[1] != batch()[0]).flatten(1).any(1).sum() == rows


def test_what_a_method_needs_is_asked_for() -> None:
    images, labels, _ = batch()
    with pytest.raises(ValueError, match=r"lambda_jsd=12.0.*augmix_pixel_values"):
        supervise(Recorder(), images, labels, Objective(**METHODS["augmix"]))
    with pytest.raises(ValueError, match=r"mixup_alpha=0.2.*num_labels"):
        supervise(Recorder(), images, labels, Objective(**METHODS["mixup"]))
    with pytest.raises(ValueError, match="PixelStats"):
        supervise(Recorder(), images, labels, Objective(**METHODS["macs_pixel"]))
