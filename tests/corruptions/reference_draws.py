"""The random numbers that the published generator draws for an image, in the form that our pure functions take.

It calls numpy's global generator, seeded per image; the order and kind of the calls follow from its algorithms.
"""

import numpy as np
import torch
from torch import Tensor

from macs_hf.corruptions import CORRUPTIONS
from macs_hf.corruptions.weather import Textures


SIDE = 32


def reference_draws(
    name: str, severity: int, index: int, parameter: tuple, image: np.ndarray, textures: Textures | None = None
) -> tuple[Tensor, ...]:
    """The draws for one image `(32, 32, 3)` of the recorded reference run."""
    np.random.seed(CORRUPTIONS.index(name) * 1_000_000 + severity * 100_000 + index)
    shape, plane = (SIDE, SIDE, 3), (SIDE, SIDE)
    if name in ("gaussian_noise", "speckle_noise"):
        return (_channels_first(np.random.normal(size=shape, scale=parameter) / parameter).float(),)
    if name == "shot_noise":
        return (_channels_first(np.random.poisson(image / 255.0 * parameter)),)
    if name == "impulse_noise":
        generator = np.random.default_rng(np.random.randint(2**31 - 1))
        return _channels_first(generator.random(shape) <= parameter), _channels_first(generator.random(shape) <= 0.5)
    if name == "glass_blur":
        _, reach, sweeps = parameter
        visited = SIDE - 2 * reach
        shifts = np.random.randint(-reach, reach, size=(sweeps, visited, visited, 2))[:, ::-1, ::-1].copy()
        return torch.from_numpy(shifts[..., 1]).int(), torch.from_numpy(shifts[..., 0]).int()
    if name == "motion_blur":
        return (torch.tensor(np.random.uniform(-45, 45)),)
    if name == "snow":
        flakes = _standard_normal(parameter[:2], plane)
        return flakes, torch.tensor(np.random.uniform(-135, -45))
    if name == "frost":
        texture = np.random.randint(5)
        height, width = textures.sizes[texture]
        top, left = np.random.randint(0, height - SIDE), np.random.randint(0, width - SIDE)
        return torch.tensor(texture), torch.tensor(top), torch.tensor(left)
    if name == "fog":
        numbers, step, amplitude = [], SIDE, 100.0
        while step >= 2:
            cells = (SIDE // step, SIDE // step)
            numbers += [np.random.uniform(-amplitude, amplitude, cells).ravel() / amplitude for _ in range(3)]
            step, amplitude = step // 2, amplitude / parameter[1]
        return (torch.from_numpy(np.concatenate([*numbers, np.zeros(1)])).float(),)
    if name == "elastic_transform":
        shift = parameter[3] * SIDE
        points = torch.from_numpy(np.random.uniform(-shift, shift, size=(3, 2)) / shift)
        field = np.stack([np.random.uniform(-1, 1, size=plane), np.random.uniform(-1, 1, size=plane)])
        return points, torch.from_numpy(field).float()
    if name == "spatter":
        return (_standard_normal(parameter[:2], plane),)
    return ()


def _channels_first(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))


def _standard_normal(parameter: tuple[float, float], shape: tuple[int, int]) -> Tensor:
    mean, deviation = parameter
    return torch.from_numpy((np.random.normal(size=shape, loc=mean, scale=deviation) - mean) / deviation).float()
