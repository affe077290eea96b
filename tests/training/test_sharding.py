"""Models that are divided over processes: by the configurations of examples/accelerate, on two CPU processes."""

import copy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import timm
import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from accelerate.utils.deepspeed import HfDeepSpeedConfig
from safetensors.torch import load_file
from tiny import Augmented, Images, arguments, build, trainer
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from training.launching import CONFIGS, HERE, launch, results
from transformers import AutoModelForImageClassification

from macs_hf import MaCSTrainer
from macs_hf.sharding import block_classes, gathered_weights, unrounded_weights
from macs_hf.training import arguments as checks
from macs_hf.training import trainer as trainer_module


HARNESS = {
    "fsdp2": "fsdp_on_cpu.py",
    "fsdp2_bf16": "fsdp_on_cpu.py",
    "deepspeed_zero2": "deepspeed_on_cpu.py",
    "deepspeed_zero3": "deepspeed_on_cpu.py",
}


@pytest.fixture(scope="module", params=HARNESS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of that name, with a folder for each model that was trained with this configuration in two CPU processes."""
    kind, _, precision = request.param.partition("_bf")
    if kind != "fsdp2":
        pytest.importorskip("deepspeed")
    folder = tmp_path_factory.mktemp("sharded") / request.param
    config = next(place / f"{kind}.yaml" for place in (CONFIGS, HERE) if (place / f"{kind}.yaml").is_file())
    script = (HERE.parent / HARNESS[request.param], HERE / "sharded_worker.py", folder)
    launch(*script, *(["bf16"] if precision else []), processes=2, config=config)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit", "timm", "resnet"])
def test_training_in_shards_ends_in_a_calibrated_model_and_resumes_exactly(name: str, folder: Path) -> None:
    if name == "resnet" and folder.name == "fsdp2_bf16":
        pytest.skip("refused")
    first, second = (found[name] for found in results(folder, 2))
    assert first | {"shares": None} == second | {"shares": None}
    if folder.name.startswith("fsdp2"):
        # It was divided: into blocks, about half of the numbers in each process.
        assert first["class"].startswith("FSDP") and first["modules"] > 3
        (mine, total), (others, _) = first["shares"], second["shares"]
        assert mine + others == total and 0.5 <= mine / total < 0.6

    # The temperature is in the head: of what ran in shards, and of what anybody loads.
    temperature = first["temperature"]
    if folder.name == "deepspeed_zero3":
        assert "cannot be folded" in first["refused"] and temperature == 1
    else:
        assert "refused" not in first and abs(temperature - 1) > 0.01
    before, after = torch.tensor(first["before"]), torch.tensor(first["after"])
    torch.testing.assert_close(after, before / temperature, rtol=1e-5, atol=1e-6)
    model = AutoModelForImageClassification.from_pretrained(folder / name).eval()
    images = Images(13, seed=2).images
    with torch.no_grad():
        torch.testing.assert_close(model(images).logits, after, rtol=1e-5, atol=1e-6)
        if name == "timm":
            loaded = timm.create_model(f"local-dir:{folder / name}", pretrained=True).eval()
            torch.testing.assert_close(loaded(images), after, rtol=1e-5, atol=1e-6)
        # BatchNorm statistics in the trainer are those of the saved model, in both processes.
        data = Images(10, seed=1)
        nll = torch.nn.functional.cross_entropy(model(data.images).logits, data.labels)
    # Trainer's own evaluation runs in the precision of training; what is fitted and folded does not.
    assert first["evaluation"] == pytest.approx(nll.item(), rel=0.02 if folder.name == "fsdp2_bf16" else 1e-5)
    assert (first["rounding"] > 1e-4) == (folder.name == "fsdp2_bf16")
    if temperature != 1:
        assert model.config.calibration_temperature == pytest.approx(temperature)
        assert model.config.prediction_set_thresholds
    assert not model.config.architectures or model.config.architectures == [type(model).__name__]

    # One file, with the names of weights that one process would give them.
    trainer(folder / "plain", build(name)).save_model(str(folder / f"plain-{name}"), _internal_call=True)
    plain, saved = (load_file(part / "model.safetensors") for part in (folder / f"plain-{name}", folder / name))
    assert {key: weight.shape for key, weight in saved.items()} == {key: w.shape for key, w in plain.items()}

    whole, resumed = (load_file(folder / name / part / "model.safetensors") for part in ("whole", "resumed"))
    assert whole.keys() == resumed.keys() and all(torch.equal(whole[key], resumed[key]) for key in whole)


@pytest.mark.slow
def test_an_optimiser_that_was_divided_is_not_resumed_in_one_piece(folder: Path) -> None:
    sharding = "FSDP" if folder.name.startswith("fsdp2") else "DeepSpeed"
    steps = {"save_strategy": "steps", "save_steps": 3, "eval_strategy": "steps", "eval_steps": 2}
    args = arguments(folder / "vit", per_device_train_batch_size=4, max_steps=6, **steps)
    run = MaCSTrainer(model=build("vit"), args=args, train_dataset=Augmented(24), eval_dataset=Images(10, seed=1))
    with pytest.raises(ValueError, match=f"sharding: '{sharding}', now None"):
        run.train(resume_from_checkpoint=str(folder / "vit" / "checkpoint-3"))


def test_blocks() -> None:
    for name, block in (("vit", "ViTLayer"), ("timm", "ConvNeXtStage"), ("resnet", "ResNetStage")):
        assert block in block_classes(build(name))
    assert block_classes(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))) == []


# ---- Refused ----


class Divided(MaCSTrainer):
    """Set up as several processes would be, in one."""

    version, saved = 2, "FULL_STATE_DICT"

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        state = self.accelerator.state
        state.fsdp_plugin = FullyShardedDataParallelPlugin(fsdp_version=self.version, state_dict_type=self.saved)
        state.distributed_type = DistributedType.FSDP
        self.is_fsdp_enabled = True


class FirstVersion(Divided):
    version = 1


class SavedInShards(Divided):
    saved = "SHARDED_STATE_DICT"


class DividedByDeepSpeed(MaCSTrainer):
    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        self.is_deepspeed_enabled = True


def of_kind(kind: type[MaCSTrainer], folder: Path, model: Any = None, **settings: Any) -> MaCSTrainer:
    return kind(model=model or build("vit"), args=arguments(folder, **settings), train_dataset=Images())


@pytest.mark.parametrize(
    ("kind", "model", "settings", "named"),
    [
        (Divided, "vit", {"ema_decay": 0.9}, r"ema_decay=0.9 .*FSDP or DeepSpeed"),
        (DividedByDeepSpeed, "vit", {"ema_decay": 0.9}, r"ema_decay=0.9 .*FSDP or DeepSpeed"),
        (SavedInShards, "vit", {}, "SHARDED_STATE_DICT saves no whole model.*FULL_STATE_DICT"),
        (Divided, "resnet", {"bf16": True}, "BatchNorm .*Pass bf16=False and fp16=False"),
    ],
)
def test_what_cannot_be_trained_in_shards(
    kind: type[MaCSTrainer], model: str, settings: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=named):
        of_kind(kind, tmp_path, build(model), **settings)
    with pytest.raises(ValueError, match="cannot be evaluated before"):
        of_kind(Divided, tmp_path, bf16=True).evaluate(Images(4))  # a ViT has no BatchNorm


def test_folding_what_only_its_owner_can_divide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = of_kind(DividedByDeepSpeed, tmp_path)  # by stage 2
    before = whole.model.classifier.weight.clone()
    whole.fold_temperature(2.0, Images(4))
    assert torch.equal(whole.model.classifier.weight, before / 2)
    first = of_kind(FirstVersion, tmp_path)
    monkeypatch.setattr(trainer_module, "is_deepspeed_zero3_enabled", lambda: True)
    for run in (whole, first):
        with pytest.raises(ValueError, match=r"spread over processes cannot be folded.*macs-hf calibrate"):
            run.fold_temperature(2.0, Images(4))


def test_stage_3_that_saves_no_whole_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = of_kind(DividedByDeepSpeed, tmp_path)
    config = HfDeepSpeedConfig({"zero_optimization": {"stage": 3}})
    monkeypatch.setattr(trainer_module, "is_deepspeed_zero3_enabled", config.is_zero3)
    monkeypatch.setattr(AcceleratorState, "deepspeed_plugin", SimpleNamespace(hf_ds_config=config))
    with pytest.raises(ValueError, match=r"stage 3 saves no whole model.*zero3_save_16bit_model to true"):
        trainer._check_sharding()
    config.config["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] = True
    trainer._check_sharding()


def test_runs_that_could_not_end_calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = arguments(tmp_path)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")  # as `accelerate launch` does
    monkeypatch.setenv("FSDP_VERSION", "2")
    monkeypatch.setattr(checks, "FSDPModule", object)  # of an old torch
    with pytest.raises(ValueError, match="update torch"):
        checks.check_ends_calibrated(args)
    monkeypatch.setattr(checks, "FSDPModule", SimpleNamespace(set_reshard_after_forward=None))
    monkeypatch.setenv("FSDP_VERSION", "1")
    with pytest.raises(ValueError, match="Set fsdp_version to 2"):
        checks.check_ends_calibrated(args)
    args.fsdp_plugin_args = {"fsdp_version": 2}  # as `fsdp_config` of the arguments does
    checks.check_ends_calibrated(args)
    monkeypatch.delenv("ACCELERATE_USE_FSDP")
    args.deepspeed_plugin = SimpleNamespace()
    monkeypatch.setattr(checks, "is_deepspeed_zero3_enabled", lambda: True)
    with pytest.raises(ValueError, match="Use stage 2, or FSDP with"):
        checks.check_ends_calibrated(args)


# ---- In one process ----


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.skipif(not hasattr(FSDPModule, "set_reshard_after_forward"), reason="refused with this torch")
def test_weights_in_16_bits_are_left_out_for_a_while(group: None) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    model, images = copy.deepcopy(plain), torch.randn(5, 4)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(model[0], mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):  # before the first forward pass, and between steps
        with torch.no_grad():
            expected = plain(images)
            with unrounded_weights(model):
                assert torch.equal(model(images), expected)
                with gathered_weights(model):
                    assert torch.equal(model(images), expected)
                assert torch.equal(model(images), expected)
        logits = model(images)
        assert logits.dtype == torch.bfloat16
        assert 1e-4 < (logits - expected).abs().max() < 1e-2
        logits.float().square().mean().backward()
        assert model[0].weight.grad.dtype == torch.float32
        optimizer.step()
        optimizer.zero_grad()
        weights = {name: weight.full_tensor() for name, weight in model.state_dict().items()}
        assert not torch.equal(weights["0.weight"], plain[0].weight)
        plain.load_state_dict(weights)
