"""The report: cells by hand, subsets, shards, sizes, temperature, and the published layouts."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from macs_hf.calibration import make_guarantees
from macs_hf.corruptions import CORRUPTIONS, FAMILIES, SEVERITIES, STANDARD_15, corrupt
from macs_hf.evaluation.corruption_benchmark import ByteImages, GuaranteeCounts, evaluate_corruptions, forward_of
from macs_hf.metrics.ece import expected_calibration_error
from macs_hf.pixels import PixelStats
from macs_hf.report.report import Cell, CorruptionTable, Guarantees

from .corruption_examples import Rank, assert_same_rows, forward, images, labelled


FEW = {"corruptions": ("gaussian_noise", "contrast", "saturate"), "severities": (1, 5), "progress": False}


def test_cells_equal_a_direct_computation() -> None:
    data = labelled()
    table = evaluate_corruptions(forward, data, seed=3, batch_size=7, temperature=2.0, **FEW)
    labels = torch.arange(30) % 3
    assert table.rows.names == FEW["corruptions"] and table.rows.index.tolist() == list(range(30))
    for column, name in enumerate(FEW["corruptions"]):
        hits, nll = 0, []
        for severity in FEW["severities"]:
            logits = forward(corrupt(images(), name, severity, seed=3))
            cell, right = table.cells[name][severity], logits.argmax(1) == labels
            nll.append([nn.functional.cross_entropy(part, labels, reduction="none") for part in (logits, logits / 2)])
            hits += right.int()
            assert cell.n == 30 and cell.accuracy == right.double().mean()
            assert (cell.nll, cell.scaled_nll) == pytest.approx([float(part.mean()) for part in nll[-1]], rel=1e-5)
            assert math.isclose(cell.ece, expected_calibration_error(logits, labels), abs_tol=1e-6)
            assert math.isclose(cell.scaled_ece, expected_calibration_error(logits / 2, labels), abs_tol=1e-6)
        # Rows hold how often an image was right, and the mean of its NLL.
        assert table.rows.hits[:, column].tolist() == hits.tolist()
        for found, parts in zip((table.rows.nll, table.rows.scaled_nll), zip(*nll, strict=True), strict=True):
            assert np.allclose(found[:, column], torch.stack(parts).mean(0), rtol=1e-5)
    assert table.clean.accuracy == (forward(images()).argmax(1) == labels).double().mean()
    assert (table.params, table.seed, table.n, table.frost) == ("cifar", 3, 30, None)


@pytest.mark.parametrize(("size", "params"), [(64, "cifar"), (72, "imagenet")])
def test_the_parameter_set_is_that_of_the_network_size(size: int, params: str) -> None:
    options = FEW | {"corruptions": ("contrast",)}
    found = evaluate_corruptions(forward, labelled(4, size), **options)
    assert found == evaluate_corruptions(forward, labelled(4, size), params=params, **options)
    assert (found.params, found.size) == (params, (size, size))
    halved = ByteImages(labelled(4, size), resize=lambda image: image[:, ::2, ::2].contiguous())
    for when in ("after_resize", "before_resize"):
        assert evaluate_corruptions(forward, halved, when=when, **options).params == "cifar"


def test_a_subset_is_fixed_and_keeps_the_images_noise() -> None:
    seen: list[Tensor] = []

    def record(batch: Tensor) -> Tensor:
        seen.append(batch)
        return forward(batch)

    options = {"corruptions": ("gaussian_noise",), "severities": (5,), "progress": False}
    table = evaluate_corruptions(record, labelled(), samples=10, **options)
    assert table.n == 10 and len(table.rows) == 10 and table.rows.index.tolist() != list(range(10))
    whole = corrupt(images(), "gaussian_noise", 5)
    assert all(any(torch.equal(image, other) for other in whole) for image in seen[1])
    again = evaluate_corruptions(forward, labelled(), samples=10, **options)
    assert again == table and evaluate_corruptions(forward, labelled(), samples=10, seed=1, **options) != table


@pytest.mark.parametrize("design", ["crossed", "spread"])
def test_shards_add_up(design: str) -> None:
    held_out = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)), torch.arange(200) % 3
    guarantees = make_guarantees(*held_out)
    barrier, shared = threading.Barrier(3), {}

    def run(rank: int | None) -> tuple[CorruptionTable, Guarantees]:
        options = FEW | {"samples": 23, "design": design}
        accelerator = None if rank is None else Rank(rank, barrier, shared)
        counts = GuaranteeCounts(guarantees)
        table = evaluate_corruptions(forward, labelled(), accelerator=accelerator, guarantee_counts=counts, **options)
        return table, counts.totals(table, accelerator)

    whole, outcome = run(None)
    assert outcome.prediction_sets[0].severity_coverage[5].n == 23
    with ThreadPoolExecutor(3) as pool:
        for table, found in pool.map(run, range(3)):
            assert table == whole and found == outcome
            assert_same_rows(table, whole)


def test_before_and_after_resizing() -> None:
    def halve(image: Tensor) -> Tensor:
        return image[:, ::2, ::2].contiguous()

    seen: list[Tensor] = []

    def record(batch: Tensor) -> Tensor:
        seen.append(batch)
        return forward(batch)

    options = {"corruptions": ("gaussian_noise",), "severities": (3,), "progress": False}
    data = ByteImages(labelled(4, 64), resize=halve)
    after = evaluate_corruptions(record, data, **options)
    before = evaluate_corruptions(record, data, when="before_resize", **options)
    originals = images(4, 64)
    assert torch.equal(seen[0], originals[..., ::2, ::2]) and torch.equal(seen[2], seen[0])
    assert torch.equal(seen[1], corrupt(originals[..., ::2, ::2], "gaussian_noise", 3))
    assert torch.equal(seen[3], corrupt(originals, "gaussian_noise", 3)[..., ::2, ::2])
    assert (after.when, before.when) == ("after_resize", "before_resize")
    with pytest.raises(ValueError, match="when='before_resize'"):
        evaluate_corruptions(forward, labelled(4, 64), when="before_resize", **FEW)


def test_kinds_of_examples() -> None:
    expected = evaluate_corruptions(forward, labelled(), **FEW)
    stats = PixelStats((0.5, 0.4, 0.3), (0.2, 0.3, 0.25))
    pils = [{"img": Image.fromarray(i.movedim(0, -1).numpy()), "y": label} for i, label in labelled()]
    assert evaluate_corruptions(forward, ByteImages(pils, ("img", "y")), **FEW) == expected
    floats = [(image / 255, label) for image, label in labelled()]
    assert evaluate_corruptions(forward, floats, **FEW) == expected
    normalised = [(stats.normalize(image), label) for image, label in floats]
    assert evaluate_corruptions(forward, ByteImages(normalised, stats=stats), **FEW) == expected
    with pytest.raises(ValueError, match=r"no 'image' but \['img', 'y'\]"):
        evaluate_corruptions(forward, pils, **FEW)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        evaluate_corruptions(forward, normalised, **FEW)
    with pytest.raises(ValueError, match=r"differ in size.*resize"):
        evaluate_corruptions(forward, [*labelled(1, 32), *labelled(1, 40)], **FEW)
    with pytest.raises(ValueError, match="empty"):
        evaluate_corruptions(forward, [], **FEW)


def test_forward_of_a_model_normalises_and_leaves_its_mode() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(3 * 32 * 32, 4)).train()
    stats = PixelStats((0.5, 0.4, 0.3), (0.2, 0.3, 0.25))
    batch = images(2)
    expected = model[2](stats.normalize(batch / 255).flatten(1))
    assert torch.allclose(forward_of(model, stats)(batch), expected, atol=1e-5) and model.training


def test_means_and_families() -> None:
    cells = {name: {s: Cell(10, 0.5, 1.0, 0.1 * s) for s in SEVERITIES} for name in CORRUPTIONS}
    cells |= {name: dict.fromkeys(SEVERITIES, Cell(10, 1.0, 1.0, 0.0)) for name in FAMILIES["extra"]}
    table = CorruptionTable("imagenet", "generated", 10, cells)
    assert table.mean(STANDARD_15) == 0.5 and math.isclose(table.mean(CORRUPTIONS), (15 * 0.5 + 4) / 19)
    assert table.mean(FAMILIES["extra"]) == 1 and table.mean(FAMILIES["blur"]) == 0.5
    assert math.isclose(table.by_severity("ece", STANDARD_15)[4], 0.4)
    noise = CorruptionTable("imagenet", "generated", 10, {name: cells[name] for name in FAMILIES["noise"]})
    assert noise.mean(STANDARD_15) is None and noise.interval() is None and noise.mean(FAMILIES["noise"]) == 0.5


def test_the_interval_counts_images_not_cells() -> None:
    # Every image is right in all cells or in none: 95 cells are worth no more than one.
    data = [(torch.full((3, 32, 32), 128, dtype=torch.uint8), i % 2) for i in range(40)]
    zeros = evaluate_corruptions(lambda batch: torch.tensor([[1.0, 0.0]]).repeat(len(batch), 1), data, progress=False)
    half = 1.96 * math.sqrt(0.25 * 40 / 39 / 40)
    for mean in ("mean15", "mean19", "noise"):
        found = zeros.interval(mean)
        assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5 - half, 0.5 + half))
