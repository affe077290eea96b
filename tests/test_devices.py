"""
Everything that runs on an accelerator, without one: tensors that say they are on a GPU but hold no values. Operations
that mix devices raise an error, and each value that the host would have to wait for is noticed. What this cannot see:
kernels, the backward pass, memory and speed.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import NUM_LABELS, Images, arguments, build
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from macs_hf import METHODS, MaCSTrainer, Objective, PixelStats, supervise
from macs_hf.calibration import fold_temperature, folding
from macs_hf.calibration.guarantees import calibrate_logits, set_outcome
from macs_hf.corruptions import CORRUPTIONS, corrupt, digital
from macs_hf.evaluation.evaluate import ood_scores
from macs_hf.objective import losses, perturbations
from macs_hf.objective.objective import PERTURBATION_SPACES, PERTURBATIONS
from macs_hf.objective.perturbations import perturb
from macs_hf.report.rows import sample_rows
from macs_hf.training.averaging import WeightAverage


GPU = torch.device("cuda", 0)
STATS = PixelStats((0.5,) * 3, (0.25,) * 3)


class Generator(torch.Generator):
    """Stands in for CUDA's, which needs a driver."""

    def __new__(cls, device: Any = "cpu") -> "Generator":
        return super().__new__(cls)

    def __init__(self, device: Any = "cpu") -> None:
        self._device = torch.device(device)

    @property
    def device(self) -> torch.device:
        return self._device


class Watch(TorchDispatchMode):
    """
    Runs what concerns the CPU alone for real, and counts the values of the GPU that the host reads. Since there are
    none, it gives `answer`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.answers: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = tree_leaves((args, kwargs := kwargs or {}))
        fakes = [leaf for leaf in leaves if isinstance(leaf, FakeTensor)]
        name = func.name()
        if not fakes and torch.device(kwargs.get("device") or "cpu").type == "cpu":
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        if name in ("aten::_local_scalar_dense", "aten::equal"):
            if any(fake.device == GPU for fake in fakes):  # what was copied to the CPU is counted already
                self.reads.append(name)
            return self.answers.pop(0) if self.answers else True
        try:
            result = func(*args, **kwargs)
        except DynamicOutputShapeException:  # how many values there are is known to the GPU alone
            self.reads.append(name)
            raise
        if isinstance(result, Tensor) and result.device.type == "cpu" and any(fake.device == GPU for fake in fakes):
            self.reads.append(name)
        return result


@pytest.fixture(scope="module")
def caches() -> list[Any]:
    """Where the package keeps tensors for their next use."""
    modules = [module for name, module in sys.modules.items() if name.startswith("macs_hf.")]
    return [part for module in modules for part in vars(module).values() if hasattr(part, "cache_clear")]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, caches: list[Any]) -> Iterator[Callable[[], Any]]:
    """A context with a GPU."""

    def forget_cached_tensors() -> None:
        for part in caches:
            part.cache_clear()

    monkeypatch.setattr(torch, "Generator", Generator)
    for module in (digital, perturbations):  # the codec has no images to read: only that they go to the CPU and back
        monkeypatch.setattr(module, "jpeg_round_trips", lambda images, qualities: images.cpu().to(images.device))
    forget_cached_tensors()

    @contextmanager
    def entered() -> Iterator[Watch]:
        with FakeTensorMode(allow_non_fake_inputs=True), Watch() as watch:
            yield watch

    yield entered
    forget_cached_tensors()


def moved(model: nn.Module) -> nn.Module:
    for module in model.modules():
        for name, tensor in {**module._parameters, **module._buffers}.items():
            place = torch.empty(tensor.shape, dtype=tensor.dtype, device=GPU) if tensor is not None else None
            if name in module._buffers:
                module._buffers[name] = place
            else:
                module._parameters[name] = None if place is None else nn.Parameter(place)
    return model


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(8, 3, 32, 32, device=GPU), torch.randint(NUM_LABELS, (8,), device=GPU)


# ---- Training ----


@pytest.mark.parametrize("method", METHODS)
def test_a_step_of_every_method_stays_on_its_device_and_is_waited_for_by_nobody(
    method: str, gpu: Callable[[], Any]
) -> None:
    model = build("resnet")
    with gpu() as watch:
        images, labels = batch()
        augmix = torch.randn(8, 2, 3, 32, 32, device=GPU)
        parts = supervise(
            moved(model).train(), images, labels, Objective(**METHODS[method]),
            pixel_stats=STATS, augmix_images=augmix, num_labels=NUM_LABELS, seed=1,
        )  # fmt: skip
        assert all(part.device == GPU for part in parts if part is not None)
        assert watch.reads == []


@pytest.mark.parametrize("space", PERTURBATION_SPACES)
@pytest.mark.parametrize("perturbation", PERTURBATIONS)
def test_perturbations(perturbation: str, space: str, gpu: Callable[[], Any]) -> None:
    objective = Objective(perturbation=perturbation, perturbation_space=space)
    with gpu() as watch:
        images, _ = batch()
        view = perturb(images, objective, STATS, Generator(GPU))
        assert view.device == GPU and view.shape == images.shape
        assert bool(watch.reads) == (perturbation == "jpeg")  # whose codec is on the CPU


@pytest.mark.parametrize("options", [{}, {"class_weights": (0.5, 1.0, 1.0, 1.5)}, {"method": "mixup"}])
def test_the_trainer_reads_labels_once_a_log_entry_and_the_log_once(
    options: dict[str, Any], gpu: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = []
    monkeypatch.setattr(losses, "check_labels", lambda labels, classes: checked.append(labels.device.type))
    args = arguments(tmp_path, **{"method": "recommended"} | options)
    run = MaCSTrainer(build("vit"), args, train_dataset=Images(), pixel_stats=STATS)
    model = run.model
    run.perturbed_in = "pixel"  # settled with the first batch of a run, which is looked at
    with gpu() as watch:
        moved(model)
        images, labels = batch()
        for step in range(5):
            loss = run.compute_loss(model.train(), {"pixel_values": images, "labels": labels})
            assert loss.device == GPU
            assert watch.reads == ["aten::_to_copy"] and checked == ["cpu"], step
        watch.reads.clear()
        run._loss_log.finite_means(run.accelerator, 5, str(tmp_path))
        assert set(watch.reads) == {"aten::_local_scalar_dense"}  # of one list
        run._loss_log.clear()
        loss, outputs = run.compute_loss(model.eval(), {"pixel_values": images, "labels": labels}, return_outputs=True)
        assert loss.device == outputs["logits"].device == GPU


def test_averages_of_weights(gpu: Callable[[], Any], tmp_path: Path) -> None:
    model, state = build("resnet"), type("State", (), {"global_step": 3})
    with gpu() as watch:
        average = WeightAverage()
        average.on_train_begin(arguments(tmp_path, ema_decay=0.9), state, None, model=moved(model))
        average.on_optimizer_step(arguments(tmp_path, ema_decay=0.9), state, None)
        with average.applied():
            assert all(tensor.device == GPU for tensor in model.state_dict().values())
        assert watch.reads == []


# ---- Measuring ----


def test_rows_and_other_reductions_of_logits(gpu: Callable[[], Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(600, NUM_LABELS, generator=generator), torch.arange(600) % NUM_LABELS
    _, guarantees = calibrate_logits((logits + 2 * nn.functional.one_hot(labels)).numpy(), labels.numpy())
    with gpu() as watch:
        logits, labels = torch.randn(8, NUM_LABELS, device=GPU), torch.randint(NUM_LABELS, (8,), device=GPU)
        found = [sample_rows(logits, labels), set_outcome(logits, labels, guarantees)]
        found += ood_scores(logits, 1.5).values()
        assert all(part.device == GPU for part in found)
        assert watch.reads == []


# Those for which the host has to read draws or images before it can go on, once for each piece of a batch.
READ_BY_THE_HOST = {"glass_blur", "motion_blur", "snow", "elastic_transform", "jpeg_compression", "spatter"}
NEEDS_A_DRIVER = ("zoom_blur",)  # a sparse matrix is moved


@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name not in NEEDS_A_DRIVER])
def test_corruptions(name: str, gpu: Callable[[], Any]) -> None:
    with gpu() as watch:
        for params, severity in (("cifar", 1), ("imagenet", 5)):
            images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8, device=GPU)
            with suppress(DynamicOutputShapeException):  # counted as a read; the rest depends on it
                result = corrupt(images, name, severity, params=params)
                assert result.device == GPU and result.dtype == torch.uint8 and result.shape == images.shape
    assert bool(watch.reads) == (name in READ_BY_THE_HOST)


def test_folding(gpu: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "DTensor", FakeTensor)  # neither has memory of its own
    model = build("vit")
    with gpu() as watch:
        moved(model)
        # Logits are finite, and not all zero; then they follow the head, divided by 2 and by the temperature.
        watch.answers = [True, False, True, True]
        fold_temperature(model, 1.5, torch.randn(2, 3, 32, 32))
        assert model.classifier.weight.device == GPU and watch.answers == []
    assert model.config.calibration_temperature == 1.5
