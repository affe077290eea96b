"""A trainer that replaces `Trainer`: the same numbers where nothing is added, the right ones where something is."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny import NUM_LABELS, Drawn, Images, Spy, arguments, build, logged, same_weights, trainer
from torch import nn
from torch.utils.data import IterableDataset
from transformers import Trainer

from macs_hf import METHODS, MaCSTrainer


PLAIN = METHODS["ce"]
# A perturbation without randomness, so that the consistency term is the same however a batch is split.
FIXED_BLUR = {"perturbation": "blur", "blur_sigma_min": 1.0, "blur_sigma_max": 1.0}


@pytest.mark.parametrize("name", ["vit", "resnet", "timm"])
def test_zero_weights_are_plain_trainer_bit_for_bit(name: str, tmp_path: Path) -> None:
    ours = trainer(tmp_path, build(name), **PLAIN)
    plain = Trainer(model=build(name), args=arguments(tmp_path, **PLAIN), train_dataset=Images())
    ours.train()
    plain.train()
    assert same_weights(ours.model, plain.model)
    assert logged(ours, "loss") == logged(plain, "loss")
    assert logged(ours, "grad_norm") == logged(plain, "grad_norm")


@pytest.mark.parametrize("name", ["vit", "swin", "timm"])
def test_accumulated_small_batches_equal_one_large_batch(name: str, tmp_path: Path) -> None:
    large = trainer(tmp_path, build(name), per_device_train_batch_size=8, **FIXED_BLUR)
    small = trainer(tmp_path, build(name), per_device_train_batch_size=2, gradient_accumulation_steps=4, **FIXED_BLUR)
    large.train()
    small.train()
    for key in ("loss", "cross_entropy_loss", "margin_loss", "consistency_loss", "logit_margin", "grad_norm"):
        assert logged(small, key) == pytest.approx(logged(large, key), rel=1e-4, abs=1e-6), key
        assert len(logged(small, key)) == 4
    assert min(logged(large, "consistency_loss")) > 0


@pytest.mark.parametrize("objective", [{}, METHODS["mbls"] | {"mbls_margin": 0.01}, METHODS["mixup"]])
def test_logged_parts_add_up_to_the_logged_loss(objective: dict[str, Any], tmp_path: Path) -> None:
    # 30 samples: each epoch ends with a smaller batch; logging every other step averages over them.
    steps = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 6, "logging_steps": 2}
    run = trainer(tmp_path, build("vit"), Images(30), **steps, **objective)
    run.train()
    weights = {
        "cross_entropy_loss": 1.0,
        "margin_loss": run.args.lambda_margin,
        "consistency_loss": run.args.lambda_consistency,
        "mbls_loss": run.args.lambda_mbls,
    }
    entries = [entry for entry in run.state.log_history if "loss" in entry]
    assert len(entries) == 3
    for entry in entries:
        total = sum(weight * entry[part] for part, weight in weights.items() if weight)
        assert total == pytest.approx(entry["loss"], abs=1e-6)
        # Only the parts that the objective has; mixed labels have no margin.
        assert weights.keys() & entry.keys() == {part for part, weight in weights.items() if weight}
        assert ("logit_margin" in entry) == (run.args.mixup_alpha == 0)


def test_training_runs_one_forward_of_both_views_and_evaluation_one_of_the_clean(tmp_path: Path) -> None:
    model, data, batches = build("resnet"), Images(20), []
    model.register_forward_pre_hook(lambda *given: batches.append(len(given[2]["pixel_values"])), with_kwargs=True)
    drops = {"dataloader_drop_last": True, "label_smoothing_factor": 0.1}
    run = trainer(tmp_path, model, max_steps=2, per_device_eval_batch_size=8, **drops)
    run.train()
    assert batches == [16, 16]
    batches.clear()
    prediction = run.predict(data)
    assert batches == [8, 8, 4] and run.args.dataloader_drop_last  # evaluation drops no sample
    assert prediction.predictions.shape == (20, NUM_LABELS) and prediction.label_ids.shape == (20,)
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model.eval()(pixel_values=data.images).logits, data.labels)
    assert prediction.metrics["test_loss"] == pytest.approx(loss.item(), abs=1e-6)


def test_evaluation_leaves_the_training_trajectory_alone(tmp_path: Path) -> None:
    quiet = trainer(tmp_path, build("vit", dropout=0.2))
    quiet.train()
    options = {"eval_strategy": "steps", "eval_steps": 1, "eval_on_start": True}
    held_out = {"a": Images(8, seed=1), "b": Images(12, seed=2)}
    evaluated = trainer(tmp_path, build("vit", dropout=0.2), eval_dataset=held_out, **options)
    evaluated.train()
    assert len(logged(evaluated, "eval_a_loss")) == len(logged(evaluated, "eval_b_loss")) == 5
    assert same_weights(quiet.model, evaluated.model)


def test_every_epoch_and_index_gets_its_own_augmentation_and_every_batch_its_own_noise(tmp_path: Path) -> None:
    batches = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}  # four an epoch
    args = arguments(tmp_path, num_train_epochs=3, max_steps=-1, **batches)
    runs = [Spy(model=build("vit"), args=args, train_dataset=Drawn(16)) for _ in range(2)]
    for run in runs:
        run.train()
    epochs = [dict(drawn for batch in run.drawn[i : i + 4] for drawn in batch.items()) for i in (0, 4, 8)]
    assert all(sorted(numbers) == list(range(16)) for numbers in epochs)
    assert len({number for numbers in epochs for number in numbers.values()}) == 48
    assert len(set(run.seeds)) == len(run.seeds) == 12
    assert (runs[0].drawn, runs[0].seeds) == (run.drawn, run.seeds)


class Stream(IterableDataset):
    def __init__(self, data: Images) -> None:
        self.data = data

    def __iter__(self):
        yield from (self.data[index] for index in range(len(self.data)))


def test_streaming_dataset_trains_and_evaluates(tmp_path: Path) -> None:
    run = trainer(tmp_path, build("vit"), Stream(Images(64)), max_steps=4)
    run.train()
    assert run.state.global_step == 4 and all(np.isfinite(logged(run, "consistency_loss")))
    assert run.evaluate(Stream(Images(10)))["eval_loss"] == pytest.approx(run.evaluate(Images(10))["eval_loss"])


@pytest.mark.parametrize(
    "options",
    [
        {"bf16": True},
        {"gradient_checkpointing": True},
        pytest.param({"torch_compile": True, "torch_compile_backend": "aot_eager"}, marks=pytest.mark.slow),
    ],
    ids=["bf16", "gradient_checkpointing", "torch_compile"],
)
def test_precision_checkpointing_and_compilation_keep_the_loss(options: dict[str, Any], tmp_path: Path) -> None:
    reference = trainer(tmp_path, build("vit"), max_steps=2)
    run = trainer(tmp_path, build("vit"), max_steps=2, **options)
    reference.train()
    run.train()
    tolerance = 0.05 if "bf16" in options else 1e-5
    assert logged(run, "loss") == pytest.approx(logged(reference, "loss"), rel=tolerance)
    assert run.predict(Images(5)).predictions.dtype == np.float32


def test_peft_model_trains_only_its_adapter_and_reports_metrics(tmp_path: Path) -> None:
    from peft import LoraConfig, PeftModel, get_peft_model

    def adapted(base: nn.Module) -> nn.Module:
        lora = LoraConfig(r=2, target_modules="all-linear", modules_to_save=["classifier"])
        return get_peft_model(base, lora)

    base = build("vit")
    frozen = base.vit.embeddings.cls_token.detach().clone()
    model = adapted(base)
    run = trainer(tmp_path, model, max_steps=3, save_strategy="steps", save_steps=2)
    run.train()
    assert torch.equal(frozen, base.vit.embeddings.cls_token)
    adapters = [value for key, value in model.state_dict().items() if "lora_B" in key]
    assert adapters and all(value.abs().max() > 0 for value in adapters)  # they start at zero
    resumed = trainer(tmp_path, adapted(build("vit")), max_steps=3)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 3
    assert same_weights(run.model, resumed.model)

    # Calibrated, saved and loaded again: the adapter's own copy of the head has the temperature.
    before = run.predict(Images(8)).predictions
    temperature = run.calibrate(Images(150, seed=3), force_temperature=True).value
    run.save_model(str(tmp_path / "adapter"))
    loaded = PeftModel.from_pretrained(build("vit"), tmp_path / "adapter").eval()
    with torch.no_grad():
        after = loaded(pixel_values=Images(8).images).logits.numpy()
    assert abs(temperature - 1) > 0.01
    assert after * temperature == pytest.approx(before, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("settings", [{}, {"config": None}, {"config": SimpleNamespace(num_labels=NUM_LABELS)}])
def test_a_network_of_ones_own_trains_with_or_without_a_config(settings: dict[str, Any], tmp_path: Path) -> None:
    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.classifier = torch.nn.Linear(3 * 32 * 32, NUM_LABELS)
            vars(self).update(settings)

        def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
            return self.classifier(pixel_values.flatten(1))

    model = Own()
    model.calibration_temperature = 2.0  # where folding leaves it in a model without a config of transformers
    before = model.classifier.weight.clone()
    MaCSTrainer(model=model, args=arguments(tmp_path, max_steps=2), train_dataset=Images(16)).train()
    assert not torch.equal(model.classifier.weight, before)
    assert not hasattr(model, "calibration_temperature")


def test_hyperparameter_search_reaches_the_objective(tmp_path: Path) -> None:
    args, data = arguments(tmp_path, max_steps=1), {"train_dataset": Images(), "eval_dataset": Images(8)}
    run = MaCSTrainer(model_init=lambda trial: build("vit"), args=args, **data)
    best = run.hyperparameter_search(
        hp_space=lambda trial: {"lambda_margin": trial.suggest_categorical("lambda_margin", [0.0])},
        compute_objective=lambda metrics: metrics["eval_loss"],
        n_trials=1,
        backend="optuna",
    )
    assert best.hyperparameters == {"lambda_margin": 0.0} and logged(run, "margin_loss") == []


def test_each_training_with_model_init_starts_anew(tmp_path: Path) -> None:
    """Also a calibrated model: what was folded into its head is forgotten with the weights, and noise starts anew."""

    def calibrated() -> nn.Module:
        model = build("vit")
        model.config.calibration_temperature = 1.5
        return model

    run = MaCSTrainer(model_init=calibrated, args=arguments(tmp_path, max_steps=1), train_dataset=Images(16))
    parts = []
    for _ in range(2):
        run.train()
        assert "calibration_temperature" not in vars(run.model.config)
        parts.append([logged(run, name) for name in ("loss", "consistency_loss")])
    assert parts[0] == parts[1]
