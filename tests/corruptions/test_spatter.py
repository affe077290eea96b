"""The parts of spatter against brute force."""

import heapq

import torch
from torch import Tensor

from macs_hf.corruptions import corrupt
from macs_hf.corruptions.spatter import DIAGONAL, FARTHEST, KNIGHT, _equalize, canny, edge_distance, spatter


def chamfer(edges: Tensor) -> Tensor:
    """Dijkstra's algorithm over straight, diagonal and knight's moves."""
    height, width = edges.shape
    steps = {
        (dy, dx) for dy in range(-2, 3) for dx in range(-2, 3) if max(abs(dy), abs(dx)) > 0 and abs(dy) + abs(dx) < 4
    }
    lengths = {1: 1.0, 2: DIAGONAL, 3: KNIGHT}
    moves = [(dy, dx, lengths[abs(dy) + abs(dx)]) for dy, dx in steps if {abs(dy), abs(dx)} != {0, 2}]
    distance = torch.full((height, width), float(FARTHEST), dtype=torch.float64)
    queue = [(0.0, y, x) for y, x in edges.nonzero().tolist()]
    for _, y, x in queue:
        distance[y, x] = 0
    while queue:
        here, y, x = heapq.heappop(queue)
        for dy, dx, length in moves:
            if 0 <= y + dy < height and 0 <= x + dx < width and here + length < distance[y + dy, x + dx]:
                distance[y + dy, x + dx] = here + length
                heapq.heappush(queue, (here + length, y + dy, x + dx))
    return distance


def test_edge_distance_equals_shortest_paths() -> None:
    generator = torch.Generator().manual_seed(0)
    for share in (0.002, 0.02, 0.2):
        edges = torch.rand(2, 24, 30, generator=generator) < share
        edges[0, 3, 4] = True
        ours = edge_distance(edges)
        for plane, got in zip(edges, ours, strict=True):
            assert (got - chamfer(plane)).abs().max() < 1e-5


def test_no_edge_is_far_away() -> None:
    assert (edge_distance(torch.zeros(1, 32, 32, dtype=torch.bool)) == FARTHEST).all()


def test_canny_finds_a_step_once() -> None:
    layer = torch.zeros(1, 32, 32)
    layer[:, :, 16:] = 200
    edges = canny(layer)[0]
    assert (edges.sum(1) == 1).all() and edges[:, 15].all()
    assert not canny(torch.full((1, 32, 32), 90.0)).any()


def test_canny_keeps_weak_edges_that_touch_strong_ones() -> None:
    layer = torch.zeros(1, 32, 32)
    layer[:, :16, 16:] = 100  # gradient 400, strong
    layer[:, 16:, 16:] = 25  # gradient 100, weak
    edges = canny(layer)[0]
    assert edges[:14, 15].all() and edges[18:, 15].all()
    layer[:, :16] = 0
    layer[:, 16:18] = 0  # the strong part gone, the weak one is no edge
    assert not canny(layer)[0][20:30, 15].any()


def test_equalize_spreads_the_levels() -> None:
    layer = torch.tensor([[3.0, 3, 5, 9]]).view(1, 2, 2)
    # Two of four at the darkest level; of the others half are at 5, all at 9.
    assert _equalize(layer).flatten().tolist() == [0, 0, 128, 255]
    assert _equalize(torch.full((1, 2, 2), 7.0)).flatten().tolist() == [7, 7, 7, 7]


def test_no_liquid_leaves_the_image() -> None:
    images = torch.full((1, 3, 32, 32), 77, dtype=torch.uint8)
    for kind in ("water", "mud"):
        parameter = (0.1, 0.01, 1, 0.7, 0.5, kind)
        assert torch.equal(spatter(images, parameter, torch.zeros(1, 32, 32)), images)


def test_mud_covers_with_its_colour() -> None:
    images = torch.full((1, 3, 32, 32), 200, dtype=torch.uint8)
    parameter = (0.9, 0.01, 1, 0.7, 0.5, "mud")
    muddy = spatter(images, parameter, torch.zeros(1, 32, 32))
    assert (muddy[0, :, 5, 5].int() - torch.tensor([63, 42, 20])).abs().max() <= 1


def test_water_adds_light_of_its_colour() -> None:
    images = torch.zeros(8, 3, 64, 64, dtype=torch.uint8)
    wet = corrupt(images, "spatter", 3).float()
    assert torch.equal(wet[:, 1], wet[:, 2])
    brightest = wet.amax((2, 3))
    assert (brightest == torch.tensor([87.0, 119.0, 119.0])).all()  # half of (175, 238, 238), truncated
