"""A perturbation, a loss, class weights, a module or a subclass of the user's own."""

import json
import math
import re
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from datasets import IterableDataset
from tiny import NUM_LABELS, Images, arguments, build, logged, same_weights, timm_resnet, trainer
from torch import Tensor, nn
from transformers import TrainingArguments

from macs_hf import MaCSTrainer, Objective, PixelStats, supervise


STATS = PixelStats((0.0,), (1.0,))


class Pixels(Images):
    """Images of pixels in [0, 1], not normalised."""

    def __init__(self, size: int = 32, seed: int = 0) -> None:
        super().__init__(size, seed)
        self.images = self.images.sigmoid()


def darker(pixels: Tensor, generator: torch.Generator) -> Tensor:
    return pixels * torch.rand(len(pixels), 1, 1, 1, generator=generator, device=pixels.device)


def test_an_own_perturbation_takes_the_place_of_t() -> None:
    seen = []

    def record(pixels: Tensor, generator: torch.Generator) -> Tensor:
        seen.append((pixels, torch.rand((), generator=generator).item()))
        return 1 - pixels

    stats = PixelStats((0.5, 0.4, 0.3), (0.2, 0.2, 0.1), channels=(2, 1, 0))
    pixels = torch.rand(4, 3, 8, 8)
    images, given = stats.normalize(pixels), []

    def forward(views: Tensor) -> Tensor:
        given.append(views)
        return views.mean((2, 3))

    supervise(
        forward, images, torch.zeros(4, dtype=torch.long), Objective(), pixel_stats=stats, perturbation=record, seed=3
    )
    torch.testing.assert_close(seen[0][0], pixels)  # red, green and blue, whatever order the network takes
    torch.testing.assert_close(given[0], torch.cat([images, stats.normalize(1 - pixels)]))
    assert seen[0][1] == torch.rand((), generator=torch.Generator().manual_seed(3)).item()


def test_an_own_perturbation_without_statistics_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"test_own_parts\.darker .*pixel_stats=PixelStats"):
        MaCSTrainer(build("vit"), arguments(tmp_path), train_dataset=Pixels(), perturbation=darker)
    with pytest.raises(ValueError, match=r"test_own_parts\.darker .*pixel_stats=PixelStats"):
        supervise(build("vit"), torch.rand(2, 3, 32, 32), torch.zeros(2).long(), Objective(), perturbation=darker)


NO_PERTURBATIONS = {
    "narrower": lambda pixels, generator: pixels[..., 1:],
    "brighter": lambda pixels, generator: pixels + 0.5,
    "undefined": lambda pixels, generator: pixels * math.nan,
    "of the global generator": lambda pixels, generator: (pixels + 0.1 * torch.randn_like(pixels)).clamp(0, 1),
}


@pytest.mark.parametrize("function", NO_PERTURBATIONS.values(), ids=NO_PERTURBATIONS)
def test_what_is_no_perturbation_is_refused_at_the_first_batch(function: Any, tmp_path: Path) -> None:
    args = arguments(tmp_path)
    run = MaCSTrainer(build("vit"), args, train_dataset=Pixels(), pixel_stats=STATS, perturbation=function)
    with pytest.raises(ValueError, match=r"perturbation=\S*test_own_parts\."):
        run.train()
    assert run.state.global_step == 0


def test_a_run_with_an_own_perturbation_resumes_exactly_and_records_its_name(tmp_path: Path) -> None:
    def made(folder: Path, function: Any = darker, **settings: Any) -> MaCSTrainer:
        args = arguments(folder, save_strategy="steps", save_steps=2, **settings)
        return MaCSTrainer(build("vit"), args, train_dataset=Pixels(), pixel_stats=STATS, perturbation=function)

    whole = made(tmp_path)
    whole.train()
    record = json.loads((tmp_path / "checkpoint-2" / "checkpoint.json").read_text())["run"]
    assert (record["perturbation_function"], record["perturbed_in"]) == (f"{__name__}.darker", "pixel")
    resumed = made(tmp_path)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert same_weights(whole.model, resumed.model)
    with pytest.raises(ValueError, match="perturbation_function"):
        made(tmp_path, torch.add).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def with_labels(counts: list[int]) -> datasets.Dataset:
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    return datasets.Dataset.from_dict({"pixel_values": [[0.0]] * len(labels), "labels": labels})


def settled_weights(run: MaCSTrainer) -> np.ndarray:
    return np.array(run._with_class_weights(Objective(class_weights=run.args.class_weights)).class_weights)


def test_weights_that_do_not_fit_are_refused_at_construction(tmp_path: Path) -> None:
    stream = IterableDataset.from_generator(lambda: iter(Images()))
    for weights, data in (
        ([1.0, 2.0], with_labels([3, 2, 1, 0])),
        ([0, 0, 0, 1], with_labels([3, 2, 1, 0])),
        ("balanced", stream),
    ):
        with pytest.raises(ValueError, match=r"^class_weights="):
            MaCSTrainer(build("vit"), arguments(tmp_path, class_weights=weights), train_dataset=data)
    run = MaCSTrainer(build("vit"), arguments(tmp_path, class_weights=[1, 1, 1, 5]), train_dataset=stream)
    np.testing.assert_allclose(settled_weights(run), [0.5, 0.5, 0.5, 2.5])


@pytest.mark.parametrize("weights", ["balanced", "4,3,2,1"])
def test_weights_have_a_mean_of_one_over_the_training_set(weights: Any, tmp_path: Path) -> None:
    counts = np.array([10, 5, 1, 4])
    run = trainer(tmp_path, build("vit"), with_labels(list(counts)), class_weights=weights)
    found = settled_weights(run)
    assert found @ counts / counts.sum() == pytest.approx(1)
    expected = 1 / counts if weights == "balanced" else np.array([4, 3, 2, 1])
    np.testing.assert_allclose(found / found[0], expected / expected[0])


def test_accumulated_weighted_batches_equal_one_large_batch(tmp_path: Path) -> None:
    settings = {"class_weights": "balanced", "lambda_consistency": 0.0}
    large = trainer(tmp_path, build("vit"), per_device_train_batch_size=8, **settings)
    small = trainer(tmp_path, build("vit"), per_device_train_batch_size=2, gradient_accumulation_steps=4, **settings)
    large.train()
    small.train()
    for key in ("loss", "cross_entropy_loss", "margin_loss", "grad_norm"):
        assert logged(small, key) == pytest.approx(logged(large, key), rel=1e-4, abs=1e-6), key
    plain = trainer(tmp_path, build("vit"), lambda_consistency=0.0)
    plain.train()
    assert logged(plain, "loss") != pytest.approx(logged(large, "loss"), rel=1e-4)


def doubled(outputs: Any, labels: Tensor, num_items_in_batch: int | None = None) -> Tensor:
    return 2 * F.cross_entropy(outputs.logits, labels, reduction="sum") / num_items_in_batch


def test_a_loss_of_the_users_takes_the_place_of_cross_entropy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = arguments(tmp_path, gradient_accumulation_steps=2, max_steps=2)
    run = MaCSTrainer(build("vit"), args, train_dataset=Images(), compute_loss_func=doubled)
    plain = MaCSTrainer(build("vit"), args, train_dataset=Images())
    run.train()
    plain.train()
    first, other = run.state.log_history[0], plain.state.log_history[0]
    for part, factor in (("cross_entropy_loss", 2), ("margin_loss", 1), ("consistency_loss", 1)):
        assert first[part] == pytest.approx(factor * other[part], rel=1e-5)
    total = first["cross_entropy_loss"] + 0.1 * first["margin_loss"] + 0.5 * first["consistency_loss"]
    assert first["loss"] == pytest.approx(total, abs=1e-6)
    for processes in (1, 2):  # the loss of an evaluation too
        monkeypatch.setattr(type(run.args), "world_size", processes)
        metrics = run.evaluate(Images(20))
        assert metrics["eval_loss"] == pytest.approx(2 * metrics["eval_nll"], rel=1e-5)


class WithoutMaCS(MaCSTrainer):
    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, **_: Any) -> Any:
        outputs = model(pixel_values=inputs["pixel_values"])
        loss = F.cross_entropy(outputs.logits, inputs["labels"])
        return (loss, {"logits": outputs.logits}) if return_outputs else loss


class WithMaCS(MaCSTrainer):
    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        return super().compute_loss(*args, **kwargs)


@pytest.mark.parametrize(("kind", "times"), [(WithoutMaCS, 1), (WithMaCS, 0)])
def test_a_subclass_that_drops_the_terms_is_warned_once(
    kind: type[MaCSTrainer], times: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kind(build("vit"), arguments(tmp_path), train_dataset=Images()).train()
    assert sum("does not call MaCSTrainer.compute_loss" in message for message in caplog.messages) == times


def test_a_bare_timm_module_is_trained_as_a_wrapped_one_with_its_own_statistics(tmp_path: Path) -> None:
    wrapped, options = timm_resnet(), {"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16)}
    bare = timm.create_model("resnet10t", num_classes=NUM_LABELS, **options)
    wrapped.timm_model.load_state_dict(bare.state_dict())
    options = {"max_steps": 2, "logging_steps": 1, "report_to": "none", "use_cpu": True, "save_strategy": "no"}
    args = TrainingArguments(str(tmp_path), **options)
    one, other = (MaCSTrainer(model, args, train_dataset=Images()) for model in (bare, wrapped))
    one.train()
    other.train()
    assert logged(one, "loss") == logged(other, "loss")
    assert one.pixel_stats == PixelStats(bare.pretrained_cfg["mean"], bare.pretrained_cfg["std"])


def test_the_card_of_a_bare_module_loads_its_weights(tmp_path: Path) -> None:
    bare, other = (timm.create_model("resnet10t", num_classes=NUM_LABELS) for _ in range(2))
    run = MaCSTrainer(bare, arguments(tmp_path), train_dataset=Images())
    run.save_model()
    run.create_model_card()
    [snippet] = re.findall(r"```python\n(.*?)```", (tmp_path / "README.md").read_text(), re.DOTALL)
    exec(snippet.replace(tmp_path.name, str(tmp_path)), {"model": other})
    assert same_weights(bare, other)
