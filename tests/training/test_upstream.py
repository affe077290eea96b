"""Canaries: everything private of other libraries that the package uses, so that a release that renames or changes
it fails here, with a sentence on what relies on it, and not in the middle of somebody's training."""

import inspect
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import datasets
import evaluate
import numpy as np
import pytest
import torch
from accelerate.data_loader import DataLoaderShard, prepare_data_loader, skip_first_batches
from datasets.utils.file_utils import xopen
from huggingface_hub.utils import httpx
from tiny import Images, arguments, build
from torch.utils.data import DataLoader, RandomSampler
from transformers import PreTrainedConfig, Trainer, TrainerState
from transformers.integrations import TrackioCallback
from transformers.utils.hub import PushInProgress

from macs_hf import MaCSTrainer
from macs_hf.randomness import KeyedDataset


# ---- transformers ----

# Each private method of Trainer that MaCSTrainer overrides or calls, its parameters, and what relies on it.
TRAINER_METHODS = {
    "_run_epoch": (
        "model epoch train_dataloader steps_in_epoch num_update_steps_per_epoch trial ignore_keys_for_eval start_time "
        "resume_from_checkpoint epochs_trained steps_trained_in_current_epoch",
        "order and augmentation are those of the epoch, and a finished run takes no further step",
    ),
    "_prepare_for_training": (
        "max_steps train_dataloader resume_from_checkpoint",
        "FSDP2 divides the model by its blocks, and what was folded into earlier weights is forgotten",
    ),
    "_remove_unused_columns": ("dataset description", "columns that the model does not take are never decoded"),
    "_get_collator_with_removed_columns": ("data_collator description", "the same where no Trainer makes the loader"),
    "_set_signature_columns_if_needed": ("", "modules that are given the images first keep them too"),
    "_load_from_checkpoint": ("resume_from_checkpoint model", "resuming restores every tensor"),
    "_load_best_model": ("", "load_best_model_at_end restores every tensor"),
    "_save_checkpoint": ("model trial", "weights that are not finite are never saved"),
    "_save_rng_state": ("output_dir", "each checkpoint is recorded before the state is written and old ones deleted"),
    "_push_from_checkpoint": ("checkpoint_folder", "checkpoints are pushed in one commit and without pickles"),
}


@pytest.mark.parametrize("name", TRAINER_METHODS)
def test_private_methods_of_trainer_have_the_parameters_they_had(name: str) -> None:
    parameters, reason = TRAINER_METHODS[name]
    assert list(inspect.signature(getattr(Trainer, name)).parameters) == ["self", *parameters.split()], reason


def test_every_private_method_that_is_overridden_is_listed() -> None:
    overridden = {name for name in vars(MaCSTrainer) if name.startswith("_") and not name.startswith("__")}
    assert {name for name in overridden if hasattr(Trainer, name)} == TRAINER_METHODS.keys() - {
        # called, not overridden
        *("_remove_unused_columns", "_get_collator_with_removed_columns", "_set_signature_columns_if_needed")
    }


class Calls(Trainer):
    """Records which of the methods `Trainer` itself calls, and with which keywords."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.calls: dict[str, set[str]] = {}
        super().__init__(*args, **kwargs)

    def init_hf_repo(self, token: str | None = None) -> None:
        self.hub_model_id, self.push_in_progress = "alice/run", None

    def push_to_hub(self, *args: Any, **kwargs: Any) -> None: ...


def recorded(name: str) -> Any:
    def method(self: Calls, *args: Any, **kwargs: Any) -> Any:
        self.calls.setdefault(name, set()).update(kwargs)
        if name != "_push_from_checkpoint":
            return getattr(super(Calls, self), name)(*args, **kwargs)

    return method


for _name in TRAINER_METHODS:
    setattr(Calls, _name, recorded(_name))


def test_trainer_still_calls_its_private_methods(tmp_path: Path) -> None:
    steps = {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    best = {"load_best_model_at_end": True, "push_to_hub": True, "remove_unused_columns": True}
    data = datasets.Dataset.from_dict({"pixel_values": Images(8).images.numpy(), "labels": Images(8).labels.numpy()})
    data = data.with_format("torch")
    for max_steps in (1, 2):
        args = arguments(tmp_path, max_steps=max_steps, **steps, **best)
        run = Calls(model=build("resnet"), args=args, train_dataset=data, eval_dataset=data)
        run.train(resume_from_checkpoint=max_steps == 2)
    run.predict(Images(8))  # not of `datasets`
    assert run.calls.keys() == TRAINER_METHODS.keys()
    assert "epoch" in run.calls["_run_epoch"]


def test_attributes_of_a_trainer(tmp_path: Path) -> None:
    args = arguments(tmp_path, per_device_train_batch_size=8, gradient_accumulation_steps=2, max_steps=2)
    run = Trainer(model=build("vit"), args=args, train_dataset=Images(24))
    assert run.model_accepts_loss_kwargs is True  # set to False, so that labels are not counted at each step
    assert run.loss_is_scaled_for_ga is None  # set to False: the loss is a mean that Trainer divides
    assert run.label_names == ["labels"]
    assert isinstance(run.callback_handler.callbacks, list)  # the average is put first
    assert not run.is_in_train
    run.train()
    # The second step has the one batch that was left of three: the logged parts are weighted by it.
    assert run.current_gradient_accumulation_steps == 1


def test_labels_are_not_counted(tmp_path: Path) -> None:
    counted = []

    class Spy(MaCSTrainer):
        def compute_loss(self, *args: Any, num_items_in_batch: Any = None, **kwargs: Any) -> Any:
            counted.append(num_items_in_batch)
            return super().compute_loss(*args, **kwargs)

    Spy(model=build("vit"), args=arguments(tmp_path, max_steps=2), train_dataset=Images()).train()
    assert counted == [None, None]


def test_the_state_is_saved_last_and_older_ones_deleted_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint with a readable state was saved to its end, and until then there is an older one."""
    there: list[set[str]] = []
    save = TrainerState.save_to_json

    def spy(self: TrainerState, path: str) -> None:
        there.append({file.name for file in Path(path).parent.iterdir()})
        if self.global_step == 2:
            assert (tmp_path / "checkpoint-1" / "trainer_state.json").is_file()
        save(self, path)

    monkeypatch.setattr(TrainerState, "save_to_json", spy)
    args = arguments(tmp_path, max_steps=2, save_strategy="steps", save_steps=1, ema_decay=0.9, save_total_limit=1)
    MaCSTrainer(model=build("timm"), args=args, train_dataset=Images()).train()
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"]
    files = {file.name for file in (tmp_path / "checkpoint-2").iterdir()}
    assert there[1] == files - {"trainer_state.json"}
    assert files >= {"model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "raw_weights.pt"}
    recorded = json.loads((tmp_path / "checkpoint-2" / "checkpoint.json").read_text())["files"]
    assert recorded.keys() == files - {"trainer_state.json", "training_args.bin", "checkpoint.json"}


def test_pushes_in_progress() -> None:
    """Checkpoints on their way to the Hub are kept in one, to which `hub_always_push` adds."""
    progress = PushInProgress([])
    progress.wait_until_done()
    assert progress.is_done() and progress.jobs == []


def test_save_model_can_be_told_not_to_push() -> None:
    assert "_internal_call" in inspect.signature(Trainer.save_model).parameters  # `push_to_hub` pushes by itself


def test_trackio_leaves_its_page_among_the_tags_of_the_model() -> None:
    """From where our card takes the link to the training's curves."""
    source = inspect.getsource(TrackioCallback)
    assert "model.model_tags" in source and 'f"trackio:' in source


def test_a_config_knows_which_model_it_came_from() -> None:
    assert PreTrainedConfig.from_dict({"_name_or_path": "alice/base"})._name_or_path == "alice/base"  # for the card


# ---- accelerate ----


def loader_of_two_processes(dataset: Any) -> DataLoaderShard:
    loader = DataLoader(dataset, batch_size=2, sampler=RandomSampler(dataset))
    return prepare_data_loader(
        loader, num_processes=2, process_index=1, put_on_device=False, use_seedable_sampler=True
    )


def test_the_epoch_of_a_loader_reaches_the_one_that_skips_its_first_batches() -> None:
    """A resumed distributed run sees the samples in the order of its epoch."""
    numbers = torch.arange(16)
    loader = loader_of_two_processes(numbers)
    orders = {}
    for epoch in (0, 3):
        loader.set_epoch(epoch)
        orders[epoch] = [batch.tolist() for batch in loader]
    assert orders[0] != orders[3]
    resumed = skip_first_batches(loader_of_two_processes(numbers), 2)
    resumed.set_epoch(3)
    assert [batch.tolist() for batch in resumed] == orders[3][2:]


def test_accelerate_does_not_pass_the_epoch_on_to_a_dataset() -> None:
    """The reason why `_run_epoch` does: if this fails, accelerate has learned to, and the call there can go."""
    dataset = KeyedDataset(Images(16), seed=0)
    loader_of_two_processes(dataset).set_epoch(3)
    assert int(dataset._epoch) == 0


def test_a_prepared_loader_wraps_one_whose_start_of_workers_can_be_set() -> None:
    """Signals that end a run do not end the workers that its last step needs; skipping batches keeps that."""
    loader = loader_of_two_processes(torch.arange(16))
    loader.base_dataloader.worker_init_fn = print
    assert loader.worker_init_fn is print and skip_first_batches(loader, 2).worker_init_fn is print


# ---- datasets ----


def test_a_dataset_has_a_fingerprint_of_its_data() -> None:
    """A temperature is not fitted on the training set, which is known by it."""
    data = datasets.Dataset.from_dict({"labels": [0, 1, 2]})
    assert data._fingerprint == datasets.Dataset.from_dict({"labels": [0, 1, 2]})._fingerprint
    assert data._fingerprint != data.select([0, 1])._fingerprint


def test_a_stream_resolves_its_features() -> None:
    """Streaming finds the image and label columns of datasets that do not say what they hold."""
    stream = datasets.IterableDataset.from_generator(lambda: iter([{"label": 1}]))
    assert stream.features is None
    assert stream._resolve_features().features == datasets.Features({"label": datasets.Value("int64")})


def test_files_inside_of_archives_open(tmp_path: Path) -> None:
    """Streamed images are read from wherever their path points to."""
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        archive.writestr("cat.png", b"pixels")
    with xopen(f"zip://cat.png::{tmp_path / 'images.zip'}", "rb") as file:
        assert file.read() == b"pixels"


def test_a_streamed_file_is_given_up_after_as_many_tries_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands lower these settings."""
    for name in ("READ", "OPEN"):
        assert isinstance(getattr(datasets.config, f"STREAMING_{name}_MAX_RETRIES"), int)
    for name in ("READ", "OPEN", "READ_SERVER_UNAVAILABLE", "READ_RATE_LIMIT"):
        assert getattr(datasets.config, f"STREAMING_{name}_RETRY_INTERVAL") > 0
        monkeypatch.setattr(datasets.config, f"STREAMING_{name}_RETRY_INTERVAL", 0)
    monkeypatch.setattr(datasets.config, "STREAMING_READ_MAX_RETRIES", 3)
    tries = []

    class Cut(io.BytesIO):
        def read(self, *args: Any) -> bytes:
            tries.append(args)
            raise httpx.ReadError("cut")

    with pytest.raises(ConnectionError, match="Disconnected"):
        datasets.utils.file_utils._add_retries_to_file_obj_read_method(Cut()).read()
    assert len(tries) == 3


# ---- evaluate ----


class Mean(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo("", "", datasets.Features({"predictions": datasets.Value("float32")}))

    def _compute(self, predictions: Any) -> dict[str, float]:
        return {"mean": float(np.mean(predictions))}


def test_a_metric_can_be_given_arrow_tables() -> None:
    """Our metrics write batches of arrays to evaluate's writer without making lists of them."""
    metric = Mean(keep_in_memory=True)
    metric.selected_feature_format = metric.features
    assert metric.writer is None
    metric._init_writer()
    metric.writer.write_table(
        datasets.Dataset.from_dict({"predictions": [1.0, 2.0]}).data.table.cast(metric.writer.schema)
    )
    assert metric.compute() == {"mean": 1.5}
