"""A `Trainer` whose runs can be repeated: stopped anywhere and resumed, they end in the same weights, bit for bit.

It knows nothing of MaCS. `Trainer` 5.22 falls short of this in five places, which are mended here: random transforms
of the data, evaluation in between, epochs of a resumed distributed run, weights whose names changed, finished runs.
"""

from typing import Any

import datasets
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, TimmWrapperForImageClassification, Trainer
from transformers.utils import logging

from ..data.keyed import KeyedDataset
from ..models.timm_layout import save_in_timm_layout
from ..randomness import global_rng_preserved
from .checkpoints import last_complete_checkpoint, restore_weights


logger = logging.get_logger(__name__)


class RepeatableTrainer(Trainer):
    """[`~transformers.Trainer`] with exact resuming and complete checkpoints."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._keyed_dataset: KeyedDataset | None = None
        super().__init__(*args, **kwargs)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        if resume_from_checkpoint is True:
            # The newest folder may have been cut off while it was written.
            found = last_complete_checkpoint(self.args.output_dir)
            if found is None:
                raise ValueError(f"No complete checkpoint in {self.args.output_dir!r} to resume from.")
            resume_from_checkpoint = str(found)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _get_dataloader(
        self, dataset: Any, description: str, *args: Any, is_training: bool = False, **kwargs: Any
    ) -> Any:
        if is_training and not isinstance(dataset, torch.utils.data.IterableDataset):
            if isinstance(dataset, datasets.Dataset):
                dataset = self._remove_unused_columns(dataset, description=description)
            seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
            self._keyed_dataset = dataset = KeyedDataset(dataset, seed)
        drop_last = self.args.dataloader_drop_last
        self.args.dataloader_drop_last = drop_last and is_training  # every sample counts when it is measured
        try:
            return super()._get_dataloader(dataset, description, *args, is_training=is_training, **kwargs)
        finally:
            self.args.dataloader_drop_last = drop_last

    def _run_epoch(self, *, epoch: int, train_dataloader: Any, **kwargs: Any) -> None:
        if self.state.global_step >= self.state.max_steps:
            # A finished run was resumed; Trainer would take one more step before it notices.
            self.control.should_training_stop = True
            return
        # accelerate's set_epoch reaches neither the dataset in a distributed run, nor the sampler when the first
        # batches of a resumed epoch are skipped.
        if self._keyed_dataset is not None:
            self._keyed_dataset.set_epoch(epoch)
        sampler = getattr(train_dataloader, "batch_sampler", None)
        while sampler is not None:
            if hasattr(getattr(sampler, "sampler", None), "set_epoch"):
                sampler.sampler.set_epoch(epoch)
            sampler = getattr(sampler, "batch_sampler", None)
        super()._run_epoch(epoch=epoch, train_dataloader=train_dataloader, **kwargs)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        # Each evaluation loader draws from the global generator, which dropout and drop-path share on a CPU.
        with global_rng_preserved():
            return super().evaluation_loop(*args, **kwargs)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        if not self.is_whole_model():
            return super()._load_from_checkpoint(resume_from_checkpoint, model)
        restore_weights(self.model, resume_from_checkpoint)

    def _load_best_model(self) -> None:
        if not self.is_whole_model():
            return super()._load_best_model()
        logger.info(f"Loading best model from {self.state.best_model_checkpoint} (score: {self.state.best_metric}).")
        with global_rng_preserved():
            restore_weights(self.model, self.state.best_model_checkpoint)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        super()._save(output_dir, state_dict)
        model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        if isinstance(model, TimmWrapperForImageClassification):
            # A wrapper built from a config saves keys that timm cannot read.
            data_config = getattr(self.processing_class, "data_config", None)
            save_in_timm_layout(model, output_dir or self.args.output_dir, data_config, state_dict)

    def is_whole_model(self) -> bool:
        """Whether this process holds the whole model and saved it with `save_pretrained` (no adapters, no shards)."""
        return isinstance(self.model, PreTrainedModel) and not (self.is_deepspeed_enabled or self.is_fsdp_enabled)
