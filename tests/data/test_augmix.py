"""AugMix in batches is torchvision's: the same operations, pixel for pixel, chosen and mixed with the same chances."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torchvision.transforms import v2

from macs_hf.data.augmix import LEVELS, AugMix, draw, operation_variants, translate
from macs_hf.randomness import fresh_keys, uniform


NAMES = list(v2.AugMix._PARTIAL_AUGMENTATION_SPACE)


def numbers(count: int, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    return uniform(fresh_keys(count), (AugMix.NUMBERS,))


def images(count: int, size: tuple[int, int] = (32, 32)) -> Tensor:
    """Noise on a ramp, with flat, dark and bright ones among them."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 60, (count, 3, *size), generator=generator)
    made = (noise + torch.linspace(0, 190, size[1]).long()).to(torch.uint8)
    made[::4] = torch.randint(0, 256, (len(made[::4]), 3, *size), generator=generator).to(torch.uint8)
    made[1] = 77
    made[2, 0] = 255
    return made


@pytest.mark.parametrize("size", [(32, 32), (27, 54), (72, 48), (224, 224)])
def test_each_variant_equals_torchvisions_operation_pixel_for_pixel(size: tuple[int, int]) -> None:
    reference, batch = v2.AugMix(all_ops=False), images(5, size)
    variants = operation_variants(*size)
    assert len(variants) == len(NAMES) * 2 * LEVELS
    for number, name in enumerate(NAMES):
        magnitudes, signed = reference._PARTIAL_AUGMENTATION_SPACE[name]
        values = magnitudes(10, *size)
        for level in range(LEVELS):
            for position, sign in enumerate((1, -1)):
                magnitude = 0.0 if values is None else float(values[level]) * (sign if signed else 1)
                operation = variants[(number * LEVELS + level) * 2 + position]
                expected = reference._apply_image_or_video_transform(
                    batch, name, magnitude, interpolation=v2.InterpolationMode.BILINEAR, fill={}
                )
                assert torch.equal(batch if operation is None else operation(batch), expected), (name, magnitude)


def test_translation_both_ways() -> None:
    image = torch.arange(1, 10, dtype=torch.uint8).view(1, 1, 3, 3)
    assert translate(image, right=1, down=0)[0, 0].tolist() == [[0, 1, 2], [0, 4, 5], [0, 7, 8]]
    assert translate(image, right=0, down=-2)[0, 0].tolist() == [[7, 8, 9], [0, 0, 0], [0, 0, 0]]


def test_operations_and_lengths_are_equally_likely() -> None:
    _, _, lengths, steps = draw(numbers(5000))
    for values, kinds in ((lengths - 1, 3), (steps // (2 * LEVELS), len(NAMES)), (steps % (2 * LEVELS), 2 * LEVELS)):
        counts = torch.bincount(values.flatten(), minlength=kinds)
        assert len(counts) == kinds and stats.chisquare(counts).pvalue > 1e-3
    flat = steps.flatten(1)
    assert np.abs(np.corrcoef(flat.T) - np.eye(9)).max() < 0.06  # steps are independent


def test_weights_have_the_distribution_of_torchvisions() -> None:
    kept, weights, *_ = draw(numbers(5000))
    torch.testing.assert_close(kept + weights.sum(1), torch.ones(5000))
    torch.manual_seed(1)
    reference = v2.AugMix()
    m = reference._sample_dirichlet(torch.ones(5000, 2))
    mixed = reference._sample_dirichlet(torch.ones(5000, 3)) * m[:, 1:]
    assert stats.ks_2samp(kept, m[:, 0]).pvalue > 1e-3
    for chain in range(3):
        assert stats.ks_2samp(weights[:, chain], mixed[:, chain]).pvalue > 1e-3
    assert stats.ks_2samp(weights.amax(1), mixed.amax(1)).pvalue > 1e-3
    assert abs(np.corrcoef(weights[:, 0] / (1 - kept), kept)[0, 1]) < 0.06


def test_a_view_is_the_mixture_of_its_chains() -> None:
    batch, drawn = images(6), numbers(6)
    variants = operation_variants(32, 32)
    kept, weights, lengths, steps = draw(drawn)
    for i, view in enumerate(AugMix((32, 32))(batch, drawn)):
        mixed = kept[i] * batch[i]
        for chain in range(3):
            image = batch[i : i + 1]
            for step in range(lengths[i, chain]):
                operation = variants[steps[i, chain, step]]
                image = image if operation is None else operation(image)
            mixed = mixed + weights[i, chain] * image[0]
        assert torch.equal(view, mixed.to(torch.uint8))


def test_views_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, drawn, augmix = images(20), numbers(20), AugMix((32, 32))
    views = augmix(batch, drawn)
    assert torch.equal(torch.cat([augmix(batch[i : i + 1], drawn[i : i + 1]) for i in range(20)]), views)
    assert torch.equal(augmix(batch[[7, 3]], drawn[[7, 3]]), views[[7, 3]])
    monkeypatch.setattr("macs_hf.data.augmix.PIECE", 3 * 3072 * 4)
    assert torch.equal(augmix(batch, drawn), views)
    assert augmix(batch[:0], drawn[:0]).shape == (0, 3, 32, 32)


def test_views_move_pixels_as_much_as_torchvisions() -> None:
    batch = images(1000)
    ours = AugMix((32, 32))(batch, numbers(1000))
    torch.manual_seed(2)
    reference = v2.AugMix(all_ops=False)
    theirs = torch.stack([reference(image) for image in batch])
    change = [(view.float() - batch.float()).abs().mean((1, 2, 3)) for view in (ours, theirs)]
    assert stats.ks_2samp(*change).pvalue > 1e-3
    assert math.isclose(ours.float().mean(), theirs.float().mean(), rel_tol=0.03)
