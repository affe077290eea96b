"""One trained model and its held-out data -> one `EvaluationReport`, with its rows and pictures on disk."""

import dataclasses
import math
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Subset
from transformers.utils import logging

from ..data.images import input_size
from ..metrics import measure
from ..objective.supervision import logits_of
from ..plots.corruptions import plot_corruption_heat_map, plot_severity_curves
from ..plots.reliability import save_reliability
from ..report.corruption_table import CorruptionTable
from ..report.evaluation import EvaluationReport, Temperature
from ..report.rows import SampleRows
from ..training.trainer import MaCSTrainer
from .byte_images import ByteImages
from .corruption_benchmark import evaluate_corruptions, forward_of
from .design import subset
from .margins import analyze_margins, spectral_complexity


logger = logging.get_logger(__name__)

# Names of JSON files that a run writes itself; a folder called like one must not overwrite it with its report.
FILES_OF_A_RUN = {
    "config",
    "run",
    "preprocessor_config",
    "trainer_state",
    "all_results",
    "train_results",
    "adapter_config",
}
PACKAGES = ("macs-hf", "torch", "torchvision", "transformers", "accelerate", "datasets", "timm")
SMALLEST_CORRUPTED = 32
# Not about what was learned, or about one machine only.
UNTOLD_ARGUMENTS = {"output_dir", "run_name", "hub_token", "local_rank", "logging_dir", "resume_from_checkpoint"}


def evaluate_checkpoint(
    trainer: MaCSTrainer,
    test: Dataset,
    calibration: Dataset | None = None,
    *,
    corruptions: str | None = None,
    corruption_samples: int | None = None,
    corruption_design: str = "auto",
    margin_samples: int = 256,
    **facts: Any,
) -> tuple[EvaluationReport, list[SampleRows]]:
    """
    Measure the trainer's model on `test`, before and after a temperature fitted on `calibration`; it stays as it is.

    Args:
        trainer ([`MaCSTrainer`]): Holds the model and runs it, on as many processes as there are.
        test, calibration (`Dataset`): Of `pixel_values` and `labels`. Without `calibration` no temperature is fitted.
        corruptions (`str`, *optional*): Parameter set of the corruption benchmark, `auto`, `cifar` or `imagenet`.
        corruption_samples (`int`, *optional*): A fixed subset of `test` for it; all, if not given.
        corruption_design (`str`, *optional*, defaults to `"auto"`): See [`CorruptionBenchmark`].
        margin_samples (`int`, *optional*, defaults to 256): A fixed subset of `test` for margins and sensitivity.
        facts: The other fields of the report (`model`, `dataset`, `split`, ...).

    Returns:
        The report, and the rows of the test samples: as the model sees them and, with `calibration`, as it does with
        its temperature.
    """
    temperature = None
    if calibration is not None:
        fit = trainer.fit_temperature(calibration)
        split = getattr(calibration, "split", None)
        temperature = Temperature(fit.temperature, fit.reason, split, fit.num_samples)
    temperatures = (1.0,) if temperature is None else (1.0, temperature.value)
    rows = trainer.predict_rows(test, temperatures)
    before, *after = [measure(part) for part in rows]
    report = EvaluationReport(
        n=len(rows[0]),
        before=before,
        after=after[0] if after else None,
        temperature=temperature,
        corruptions=_corruptions(
            trainer, test, rows, temperature, params=corruptions, samples=corruption_samples, design=corruption_design
        ),
        margins=_margins(trainer, test, margin_samples),
        versions={package: version(package) for package in PACKAGES},
        **facts,
    )
    return report, rows


def write_report(report: EvaluationReport, rows: Sequence[SampleRows], folder: str | Path, run: str) -> list[Path]:
    """Write `<run>.json`, `<run>.samples.npz` and the pictures to `folder`; returns what was written."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    run = f"{run}-report" if run in FILES_OF_A_RUN else run
    report = dataclasses.replace(report, samples=f"{run}.samples.npz")
    report.save(folder / f"{run}.json")
    rows[-1].save(folder / report.samples, before=rows[0])
    written = [folder / f"{run}.json", folder / report.samples, folder / f"{run}.reliability.png"]
    save_reliability(report, written[-1])
    if report.corruptions is not None:
        written += [folder / f"{run}.corruptions.png", folder / f"{run}.severity.png"]
        table = CorruptionTable.from_dict(report.corruptions)
        plot_corruption_heat_map(table).savefig(written[-2])
        plot_severity_curves({run: table}).savefig(written[-1])
    return written


def default_corruptions(processor: Any) -> str | None:
    """The parameter set that fits a model's input size: `cifar` up to 64 pixels, `imagenet` above; none below 32."""
    size = min(input_size(processor))
    if size < SMALLEST_CORRUPTED:
        logger.warning(f"No corruption benchmark: the network takes {size} pixels, fewer than {SMALLEST_CORRUPTED}.")
        return None
    return "cifar" if size <= 64 else "imagenet"


def told_arguments(arguments: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults, as plain data."""
    told = {}
    for field in dataclasses.fields(arguments):
        value = getattr(arguments, field.name)
        default = field.default_factory() if field.default is dataclasses.MISSING else field.default
        if value != default and field.init and field.name not in UNTOLD_ARGUMENTS:
            plain = isinstance(value, bool | int | float | str | list | dict | type(None))
            told[field.name] = getattr(value, "value", value) if plain else str(getattr(value, "value", value))
    return told


def command_line(script: str) -> str:
    """How this process was started, without the machine's own paths."""
    return shlex.join([*script.split(), *sys.argv[1:]])


def _corruptions(
    trainer: MaCSTrainer,
    test: Dataset,
    rows: Sequence[SampleRows],
    temperature: Temperature | None,
    **benchmark: Any,
) -> dict[str, Any] | None:
    if benchmark["params"] is None:
        return None
    if trainer.pixel_stats is None:
        raise ValueError(
            "Corruptions act on pixels, but how images are normalised is not known: give the trainer the image "
            "processor (processing_class) or pixel_stats=PixelStats(mean, std)."
        )
    table = evaluate_corruptions(
        forward_of(trainer.model, trainer.pixel_stats),
        ByteImages(test, ("pixel_values", "labels"), trainer.pixel_stats),
        temperature=temperature.value if temperature else None,
        clean_rows=rows,
        batch_size=trainer.args.eval_batch_size,
        accelerator=trainer.accelerator,
        progress=not trainer.args.disable_tqdm,
        **benchmark,
    )
    return table.to_dict()


def _margins(trainer: MaCSTrainer, test: Dataset, samples: int) -> dict[str, Any]:
    model = trainer.model.eval()
    part = Subset(test, subset(len(test), samples, seed=0))  # the first ones may all be of one class
    loader = DataLoader(part, batch_size=trainer.args.eval_batch_size, collate_fn=trainer.data_collator)

    @torch.inference_mode()
    def forward(images: torch.Tensor) -> torch.Tensor:
        return logits_of(model(pixel_values=images)).float()

    batches = ((batch["pixel_values"].to(trainer.args.device), batch["labels"]) for batch in loader)
    found = analyze_margins(forward, batches).to_dict() | {"spectral_complexity_log10": spectral_complexity(model)}
    # A constant model has an infinite ratio, a layer of zeros no complexity: JSON knows neither.
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in found.items()
    }
