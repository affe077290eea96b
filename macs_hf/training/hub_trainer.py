"""What a trainer does with the Hub, in place of `Trainer`'s own: see `publishing.py`."""

from concurrent.futures import Future
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo
from transformers import Trainer
from transformers.trainer_utils import HubStrategy, SaveStrategy
from transformers.utils.hub import PushInProgress

from ..hub.reach import is_local
from ..publishing.access import open_repo, refuse_hub_token
from ..publishing.folder import write_card
from ..publishing.push import LAST_CHECKPOINT, download_checkpoint, push_checkpoint, push_folder
from ..report.evaluation import EvaluationReport


class HubTrainer(Trainer):
    """A `Trainer` that checks its access before training, and pushes in one commit or not at all, without pickles."""

    def _validate_args(self) -> None:
        super()._validate_args()
        refuse_hub_token(self.args)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As in `Trainer`; `resume_from_checkpoint` may also be a Hub id, whose `last-checkpoint` is then taken."""
        if isinstance(resume_from_checkpoint, str) and resume_from_checkpoint.lower() == "true":
            resume_from_checkpoint = True
        if isinstance(resume_from_checkpoint, str) and not is_local(resume_from_checkpoint):
            if resume_from_checkpoint.count("/") != 1:
                raise ValueError(
                    f"resume_from_checkpoint={resume_from_checkpoint!r} is neither a folder nor a Hub id. Name a "
                    "checkpoint folder, or pass true for the newest one in output_dir."
                )
            resume_from_checkpoint = download_checkpoint(resume_from_checkpoint)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def init_hf_repo(self, token: str | None = None) -> None:
        """Find out who pushes and whether they may, and make the repository and its branch."""
        if self.is_world_process_zero():
            self.hub_model_id = open_repo(self.args, token)
            self.push_in_progress = None

    def create_model_card(
        self,
        language: str | None = None,
        license: str | None = None,
        tags: str | list[str] | None = None,
        model_name: str | None = None,
        finetuned_from: str | None = None,
        tasks: str | list[str] | None = None,
        dataset_tags: str | list[str] | None = None,
        dataset: str | list[str] | None = None,
        dataset_args: str | list[str] | None = None,
        report: EvaluationReport | None = None,
    ) -> None:
        """
        Write `README.md` from `report`, with the arguments of `Trainer`; `tasks`, `dataset` and `dataset_args` are
        accepted for its sake, but the task and the dataset are those of the report.
        """
        if not self.is_world_process_zero():
            return
        name = model_name or (self.hub_model_id or Path(self.args.output_dir).absolute().name).rpartition("/")[2]
        datasets = [dataset_tags] if isinstance(dataset_tags, str) else dataset_tags
        write_card(
            self.args.output_dir,
            self.hub_model_id or name,
            report,
            name=name,
            license=license,
            language=language,
            tags=[tags] if isinstance(tags, str) else tags,
            base_model=finetuned_from or getattr(getattr(self.model, "config", None), "_name_or_path", None) or None,
            datasets=datasets,
        )

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        **kwargs: Any,
    ) -> "CommitInfo | Future[CommitInfo] | None":
        """
        Save the model, then push it with its processor, its report, pictures and card, in one commit.

        Fold the temperature, write the report (`write_report`) and pass it as `report` too. If the push fails, nothing
        is lost:
        [`~macs_hf.publishing.PushError`] says how to push again. All processes have to call it; one of them pushes.

        Args:
            commit_message, blocking, token, revision: As in `Trainer`.
            kwargs: Passed to [`~HubTrainer.create_model_card`], such as `license` and `report`.
        """
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        if self.hub_model_id is None:
            self.init_hf_repo(token)
        self.save_model(_internal_call=True)
        if not self.is_world_process_zero():
            return None
        self._finish_current_push()
        self.create_model_card(**kwargs)
        return push_folder(
            self.args.output_dir,
            self.hub_model_id,
            private=self.args.hub_private_repo,
            revision=revision or self.args.hub_revision,
            commit_message=commit_message,
            token=token,
            blocking=blocking,
            with_report=kwargs.get("report") is not None,
        )

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        strategy = self.args.hub_strategy
        if not self.is_world_process_zero() or strategy == HubStrategy.END:
            return
        running = self.push_in_progress is not None and not self.push_in_progress.is_done()
        if running and not self.args.hub_always_push:
            return
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        where = {HubStrategy.CHECKPOINT: LAST_CHECKPOINT, HubStrategy.ALL_CHECKPOINTS: Path(checkpoint_folder).name}
        steps = self.args.save_strategy == SaveStrategy.STEPS
        at = f"step {self.state.global_step}" if steps else f"epoch {int(self.state.epoch)}"
        job = push_checkpoint(
            checkpoint_folder,
            self.hub_model_id,
            commit_message=f"Training in progress, {at}",
            revision=self.args.hub_revision,
            path_in_repo=where.get(strategy),
        )
        if running:
            self.push_in_progress.jobs.append(job)
        else:
            self.push_in_progress = PushInProgress([job])
