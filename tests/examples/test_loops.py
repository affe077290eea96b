"""`supervise` in other people's loops: a plain one, timm's step, a LightningModule."""

import copy
import importlib.util
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import timm
import torch
from tiny import Images, build
from torch.nn import functional as F
from torch.utils.data import DataLoader

from macs_hf import METHODS, Objective


EXAMPLES = Path(__file__).parents[2] / "examples"
CE, MACS = (Objective(**METHODS[name]) for name in ("ce", "macs"))


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_plain_loop_with_weights_zero_is_cross_entropy(capsys: pytest.CaptureFixture) -> None:
    data, model = Images(128), build("resnet")
    reference = copy.deepcopy(model).train()
    torch.manual_seed(1)
    losses = example("plain_loop").train(model, data, CE, None, epochs=2)

    optimizer = torch.optim.AdamW(reference.parameters(), lr=5e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=4)
    torch.manual_seed(1)
    expected = []
    loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=True)
    for batch in [*loader, *loader]:
        loss = F.cross_entropy(reference(batch["pixel_values"]).logits, batch["labels"])
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        expected.append(loss.item())
    assert losses == expected


def step_of_timm(objective: Objective | None) -> dict[str, torch.Tensor]:
    """The weights after two steps, by the example or, without an objective, by timm's lines."""
    loop, data = example("timm_step"), Images(8)
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=4)
    optimizer = loop.create_optimizer_v2(model, opt="adamw", lr=1e-3)
    scaler, average = loop.NativeScaler(), loop.ModelEmaV3(model, decay=0.9)
    torch.manual_seed(1)
    for step in (1, 2):
        if objective is not None:
            loop.train_step(model, data.images, data.labels, objective, optimizer, scaler, average, step)
            continue
        loss = F.cross_entropy(model(data.images), data.labels)
        optimizer.zero_grad()
        scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
        average.update(model, step=step)
    return average.module.state_dict()


@pytest.mark.filterwarnings("ignore:.*GradScaler")
def test_the_step_of_timm_with_weights_zero_is_timms_own() -> None:
    ours, timms, macs = step_of_timm(CE), step_of_timm(None), step_of_timm(MACS)
    assert all(torch.equal(ours[name], timms[name]) for name in timms)
    assert not torch.equal(macs["fc.weight"], timms["fc.weight"])


def training_step(objective: Objective, index: int = 0, rank: int = 0) -> dict[str, torch.Tensor]:
    """What the module logs of a step, with the loss that it returns."""
    module = example("lightning_module").MaCSModule(build("vit"), objective)
    logged: dict[str, Any] = {}
    module.log_dict = lambda scalars, **_: logged.update(scalars)
    type(module).global_rank = property(lambda _: rank)
    data = Images(8)
    loss = module.training_step({"pixel_values": data.images, "labels": data.labels}, index)
    return {name: value.item() for name, value in logged.items()} | {"returned": loss.item()}


def test_a_lightning_module_logs_the_parts_of_its_loss() -> None:
    pytest.importorskip("lightning")
    parts = training_step(MACS)
    terms = parts["cross_entropy_loss"] + 0.1 * parts["margin_loss"] + 0.5 * parts["consistency_loss"]
    assert parts["loss"] == parts["returned"] == pytest.approx(terms, rel=1e-5)
    assert training_step(MACS) == parts  # resumed, the same
    others = [training_step(MACS, index=1), training_step(MACS, rank=1)]
    assert len({part["consistency_loss"] for part in (parts, *others)}) == 3
    plain = training_step(CE)
    assert plain["loss"] == plain["cross_entropy_loss"] == parts["cross_entropy_loss"]


@pytest.mark.slow
def test_the_plain_loop_ends_calibrated() -> None:
    before, after = example("plain_loop").main(["--epochs", "4"]).values()
    assert before["accuracy"] == after["accuracy"] > 0.9
    assert after["nll"] < before["nll"] and after["ece"] < before["ece"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*GradScaler")
def test_the_loop_of_timm_ends_calibrated() -> None:
    found = example("timm_step").main(["--epochs", "4"])
    assert found["top1"] > 90 and found["nll"]["after"] < found["nll"]["before"]


@pytest.mark.slow
def test_lightning_ends_calibrated() -> None:
    pytest.importorskip("lightning")
    found = example("lightning_module").main(["--epochs", "4"])
    assert found["before"]["test_accuracy"] == found["after"]["test_accuracy"] > 0.9
    assert found["after"]["test_nll"] < found["before"]["test_nll"] and math.isfinite(found["logged"]["val_nll"])
    assert {"loss", "margin_loss", "consistency_loss"} <= found["logged"].keys()
