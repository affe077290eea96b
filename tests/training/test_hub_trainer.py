"""A trainer and the Hub, in one process with the loopback Hub: what it pushes when, and what it says if it cannot."""

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from huggingface_hub import HfApi
from loopback_hub.server import ALICE, ALICE_READS, HubServer, leaks
from transformers import AutoModelForImageClassification, TrainerCallback, ViTImageProcessor

from macs_hf import MaCSTrainer
from macs_hf.evaluation import evaluate_checkpoint, write_report
from macs_hf.publishing.push import PushError
from macs_hf.report.report import load_run
from macs_hf.training import trainer as module


def pushing(tmp_path: Path, name: str, model: str = "resnet", **overrides: Any) -> MaCSTrainer:
    args = tiny.arguments(tmp_path / name, push_to_hub=True, **{"save_strategy": "steps", "save_steps": 2} | overrides)
    processor = ViTImageProcessor(size={"height": 32, "width": 32})
    return MaCSTrainer(model=tiny.build(model), args=args, train_dataset=tiny.Images(), processing_class=processor)


def test_token_in_arguments_is_refused(hub: HubServer, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"hub_token would be written into training_args.bin.*hf auth login.*HF_TOKEN"
    ):
        pushing(tmp_path, "run", hub_token=ALICE)
    assert hub.requests == []


@pytest.mark.parametrize(
    "strategy",
    ["checkpoint", *(pytest.param(s, marks=pytest.mark.slow) for s in ("end", "every_save", "all_checkpoints"))],
)
def test_trainer_pushes_a_calibrated_model_last(hub: HubServer, tmp_path: Path, strategy: str) -> None:
    trainer = pushing(tmp_path, "run", hub_strategy=strategy, hub_always_push=True, save_total_limit=1)
    trainer.train()
    unfolded = AutoModelForImageClassification.from_pretrained(trainer.args.output_dir + "/checkpoint-4")
    if strategy != "end":
        assert "No evaluation report" in hub.files("alice/run")["README.md"].decode()
        weights = (tmp_path / "run" / "checkpoint-4" / "model.safetensors").read_bytes()
        assert hub.files("alice/run")["model.safetensors"] == weights
    facts = {"model": "tiny", "dataset": "digits", "split": "test"}
    report, rows = evaluate_checkpoint(trainer, tiny.Images(64, seed=1), tiny.Images(128, seed=2), **facts)
    trainer.fold_temperature(report.temperature.value, tiny.Images(8, seed=2))
    write_report(report, rows, trainer.args.output_dir)
    commit = trainer.push_to_hub(license="mit", report=report)
    assert commit.oid == hub.repo("alice/run").branches["main"]

    assert load_run(tmp_path / "run").report.checksums.keys() == {"model.safetensors", "samples.parquet"}

    images = tiny.Images(4, seed=3)[:4]["pixel_values"]
    loaded = AutoModelForImageClassification.from_pretrained(trainer.args.output_dir)
    with torch.no_grad():
        logits = loaded(images).logits
        torch.testing.assert_close(logits, unfolded(images).logits / report.temperature.value)
        torch.testing.assert_close(logits, trainer.model.eval()(images).logits)
    assert hub.files("alice/run")["model.safetensors"] == (tmp_path / "run" / "model.safetensors").read_bytes()

    commits = list(hub.repo("alice/run").history())
    titles = [c.title for c in commits]
    assert titles[0] == "End of training" and titles.count("End of training") == 1
    assert ("Training in progress, step 2" in titles) == (strategy != "end")
    everything = {name for c in commits for name in c.files}
    assert not any(name.endswith("training_args.bin") for name in everything)
    pickles = {name for name in everything if name.endswith((".bin", ".pt", ".pth", ".pkl"))}
    assert all(name.startswith("last-checkpoint/") for name in pickles)
    assert bool(pickles) == (strategy == "checkpoint")
    assert ("checkpoint-4/model.safetensors" in everything) == (strategy == "all_checkpoints")
    assert leaks(hub, "alice/run") == set()


@pytest.mark.parametrize("ema_decay", [None, 0.7])
def test_trainer_resumes_from_the_hub(hub: HubServer, tmp_path: Path, ema_decay: float | None) -> None:
    whole = tiny.trainer(tmp_path / "whole", tiny.build("resnet"), ema_decay=ema_decay)
    whole.train()
    stopped = pushing(tmp_path, "stopped", hub_strategy="checkpoint", ema_decay=ema_decay)
    stopped.add_callback(tiny.StopAt(2))
    stopped.train()
    # The model that was pushed is the one that was left in the trainer: the average, if there is one.
    pushed = tmp_path / "stopped" / "checkpoint-2" / "model.safetensors"
    assert hub.files("alice/stopped")["model.safetensors"] == pushed.read_bytes()
    assert tiny.same_weights(AutoModelForImageClassification.from_pretrained(pushed.parent), stopped.model)
    raw = {name for name in hub.files("alice/stopped") if "raw_weights" in name}
    assert raw == ({"last-checkpoint/raw_weights.pt"} if ema_decay else set())
    shutil.rmtree(tmp_path / "stopped")
    resumed = tiny.trainer(tmp_path / "resumed", tiny.build("resnet", seed=5), ema_decay=ema_decay)
    resumed.train(resume_from_checkpoint="alice/stopped")
    assert resumed.state.global_step == 4 and tiny.same_weights(resumed.model, whole.model)
    assert not tiny.same_weights(stopped.model, whole.model)
    with pytest.raises(FileNotFoundError, match=r"Checkpoint 'alice/nothing' is not at"):
        resumed.train(resume_from_checkpoint="alice/nothing")
    HfApi().create_repo("alice/empty")
    with pytest.raises(FileNotFoundError, match=r"'alice/empty' has no last-checkpoint/ to resume from"):
        resumed.train(resume_from_checkpoint="alice/empty")


def test_a_push_during_training_that_fails_does_not_stop_it(hub: HubServer, tmp_path: Path) -> None:
    trainer = pushing(tmp_path, "run", hub_strategy="every_save", hub_always_push=True)
    hub.inject("commit", status=503)
    trainer.train()
    assert trainer.state.global_step == 4
    titles = [commit.title for commit in hub.repo("alice/run").history()]
    assert titles == ["Training in progress, step 4", "initial commit"]


def test_who_may_not_push_does_not_start(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", ALICE_READS)
    with pytest.raises(PermissionError, match="may only read"):
        pushing(tmp_path, "run")


def test_a_push_to_a_private_branch_without_a_report_that_fails_at_first(hub: HubServer, tmp_path: Path) -> None:
    trainer = pushing(tmp_path, "run", hub_strategy="end", hub_revision="trial/1", hub_private_repo=True, max_steps=1)
    card = {"tags": "mine", "tasks": "image-classification", "dataset": "Pets", "finetuned_from": "alice/base"}
    hub.inject("commit", status=503)
    with pytest.raises(PushError, match=r"macs-hf push \S+/run alice/run"):
        trainer.push_to_hub(**card)
    trainer.push_to_hub(**card)
    assert hub.repo("alice/run").private
    readme = hub.files("alice/run", revision="trial/1")["README.md"].decode()
    assert "No evaluation report" in readme and "- mine" in readme and "base_model: alice/base" in readme
    assert set(hub.files("alice/run")) == {".gitattributes"}


def test_trainer_is_told_to_be_private_when_it_pushes(hub: HubServer, tmp_path: Path) -> None:
    HfApi().create_repo("alice/shown")
    for name in ("hidden", "shown"):
        trainer = tiny.trainer(tmp_path / name, tiny.build("resnet"), max_steps=1, hub_model_id=f"alice/{name}")
        with pytest.raises(ValueError, match="was to be private") if name == "shown" else nullcontext():
            trainer.push_to_hub(private=True)
    assert hub.repo("alice/hidden").private and "model.safetensors" in hub.files("alice/hidden")


PAGE = "https://huggingface.co/spaces/alice/curves"


class Tracker(TrainerCallback):
    """Names the page with the training's curves when a push begins, as the callback of Trackio does."""

    def on_push_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        model.add_model_tags(["trackio", f"trackio:{PAGE}"])


def test_the_page_of_a_tracker_is_linked_once_it_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line writes the card before the push begins, when the page has no name yet."""
    run = tiny.trainer(tmp_path, tiny.build("vit"), max_steps=1, callbacks=[Tracker()])
    run.model.add_model_tags(["birds", "trackio:https://huggingface.co/spaces/a/b)](javascript:x)"])  # no link
    run.save_model()
    run.hub_model_id, run.push_in_progress = "alice/run", None
    run.create_model_card(tags="mine")
    card, pushed = tmp_path / "README.md", []
    assert "- birds\n" in card.read_text() and "Training curves" not in card.read_text()
    monkeypatch.setattr(module, "push_folder", lambda folder, *args, **kwargs: pushed.append(card.read_text()))
    run.model.model_tags.pop()
    for _ in range(2):
        run.push_to_hub(saved=True)
    assert pushed[0] == pushed[1] and "- mine\n" in pushed[0] and pushed[0].count(f"]({PAGE}") == 1
