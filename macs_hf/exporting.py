"""Files that run without PyTorch: ONNX in float32 and int8, checked against the model and measured again.

    config.json, preprocessor_config.json    classes, and how images are prepared
    onnx/model.onnx                          float32
    onnx/model_quantized.onnx                int8
    export.json, README.md                   what was measured

The names are those that transformers.js and Optimum look for. Everything is made in a temporary folder first: nothing
is left where anything fails.
"""

import copy
import math
import tempfile
from collections.abc import Iterable
from importlib.metadata import version
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch
from huggingface_hub import ModelCard, ModelCardData
from PIL import Image
from pydantic import BaseModel, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset
from transformers import BitImageProcessor, PreTrainedModel, TimmWrapperForImageClassification
from transformers import TimmWrapperImageProcessor as TimmProcessor

from .calibration.temperature import checked_samples, find_temperature
from .evaluation.corruption_benchmark import subset
from .exceptions import ArgumentError
from .hub import is_hub_id
from .metrics import compare, measure
from .metrics.comparison import Verdict
from .models.timm_layout import timm_config
from .objective.supervision import logits_of
from .pixels import preparation
from .rendering.markdown import rendered, table_markdown
from .report.report import TEMPERATURE_FIELD, Measurement
from .report.rows import SampleRows
from .report.run_folder import IDENTITY_FILE, LOCK_FILE, redact, write_text_atomically
from .report.sections import METRICS, Table, interval_text, metric_table
from .training.callbacks import Screen


FLOAT32_FILE, INT8_FILE, EXPORT_FILE = "onnx/model.onnx", "onnx/model_quantized.onnx", "export.json"
INPUT, OUTPUT = "pixel_values", "logits"
DRAFT = "_export-"
CHECKED_IMAGES, RANGE_IMAGES = 256, 512
# Of the largest logit: what sums of float32 in another order differ by, and a wrong graph exceeds by far.
TOLERANCE = 1e-3
# Of all paired comparisons, those that the report keeps.
COMPARED = ("accuracy", "ece", "debiased_ece", "nll", "brier")


# ---- The report ----


class Difference(BaseModel, frozen=True):
    """int8 minus float32 in one metric, paired by image, with its 95 % interval."""

    value: float
    low: float
    high: float
    verdict: Verdict  # how int8 is


class ExportReport(BaseModel, frozen=True, extra="forbid"):
    """What was exported, how well it agrees with the model, and what was measured."""

    model: str  # Hub id or name
    model_revision: str | None = None
    image_size: tuple[int, int]  # height and width of the input
    num_labels: int
    files: dict[str, int]  # bytes of each file, by its path in the folder
    calibration_temperature: float | None = None  # what was folded into the model before, as its config says
    # The float32 file against the model in PyTorch, on the same images.
    checked_on: str  # which images they are
    checked: PositiveInt
    largest_difference: NonNegativeFloat  # of any logit
    largest_logit: NonNegativeFloat  # in absolute value, to compare the difference with
    same_predictions: NonNegativeInt
    # What was measured, if there were images.
    dataset: str | None = None
    dataset_config: str | None = None
    split: str | None = None
    n: int | None = None
    above_chance: bool | None = None  # the accuracy of float32; `None` if all images are of one class
    float32: Measurement | None = None
    int8: Measurement | None = None  # with its temperature
    differences: dict[str, Difference] = {}  # int8 minus float32, by metric
    # Held-out images: those whose activations set the ranges of the integers, and those that gave the temperature.
    held_out_split: str | None = None
    range_images: int | None = None
    temperature_images: int | None = None
    # What the logits of the int8 file are divided by: its best temperature over that of float32, so that it is as sure
    # as the float32 file; and why it could not be fitted and stayed 1.
    int8_temperature: PositiveFloat | None = None
    temperature_reason: str | None = None
    command: str | None = None
    versions: dict[str, str] = {}
    schema_version: Literal[1] = 1

    def save(self, folder: str | PathLike[str]) -> None:
        write_text_atomically(Path(folder, EXPORT_FILE), redact(self.model_dump_json(indent=2)) + "\n")

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> "ExportReport":
        return cls.model_validate_json(Path(folder, EXPORT_FILE).read_bytes())


# ---- Exporting ----


def export_model(
    model: PreTrainedModel,
    processor: Any,
    folder: str | PathLike,
    *,
    test: Dataset | None = None,
    held_out: Dataset | None = None,
    int8: bool = False,
    batch_size: int = 64,
    name: str | None = None,
    license: str | None = None,
    screen: Screen | None = None,
    **metadata: str | None,
) -> ExportReport:
    """
    Write ONNX files of a classifier, checked against it and, with `test`, measured.

    Args:
        model ([`~transformers.PreTrainedModel`]): Not modified.
        processor: Its image processor.
        folder (`str` or `PathLike`): Where to; a new or empty folder, or an earlier export, which is replaced.
        test (`Dataset`, *optional*): Labelled images to measure the files on.
        held_out (`Dataset`, *optional*): Labelled images that neither trained the model nor test it: they set the
            ranges of the int8 file and its temperature.
        int8 (`bool`, *optional*, defaults to `False`): Whether to write an int8 file too; needs `test` and `held_out`.
        batch_size (`int`, *optional*, defaults to 64): Images in a forward pass.
        name (`str`, *optional*): What report and card call the model; its class by default.
        license (`str`, *optional*): Of the model, for the card.
        screen ([`Screen`], *optional*): Where to show how far it is; without one, nothing is shown.
        metadata: Fields of [`ExportReport`] that say where model and images come from: `model_revision`, `dataset`,
            `dataset_config`, `split`, `held_out_split` and `command`.

    Raises:
        `ValueError`: If the model cannot be exported, the files do not agree with it, or data are missing; nothing is
        written then.
    """
    folder, screen = Path(folder), screen or Screen(enabled=False)
    check_request(folder, int8=int8, has_images=test is not None and held_out is not None)
    size = preparation(processor).size
    if size is None:
        raise ValueError(f"{type(processor).__name__} gives images of varying sizes: set one with image_size=...")
    described = described_processor(processor)
    network = LogitsOnly(model)

    # The folder, or the first above it that exists: on the same disk, so that files can be moved.
    place = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.is_dir())
    with tempfile.TemporaryDirectory(prefix=DRAFT, dir=place) as temporary:
        staged = Path(temporary)
        (staged / "onnx").mkdir()
        is_timm = isinstance(model, TimmWrapperForImageClassification)
        (timm_config(model, processor.data_config) if is_timm else model.config).save_pretrained(staged)
        described.save_pretrained(staged)
        with screen.phase("writing the float32 file"):
            write_onnx(network, size, staged / FLOAT32_FILE)
        with screen.phase("comparing it with PyTorch"):
            found = _agreement(network, staged / FLOAT32_FILE, processor, test)
        if test is not None:
            logits, labels = _predict(staged / FLOAT32_FILE, test, batch_size, screen, "testing float32")
            rows, counts = SampleRows.from_logits(logits, labels), labels.bincount()
            found |= {"n": len(test), "float32": measure(rows)}
            if (counts > 0).sum() > 1:
                found["above_chance"] = found["float32"].metrics["accuracy"].low > counts.max().item() / len(test)
        if int8:
            found |= _int8(staged, held_out, test, rows, batch_size, screen)
        report = ExportReport(
            image_size=size,
            num_labels=model.config.num_labels,
            files={name: (staged / name).stat().st_size for name in (FLOAT32_FILE, INT8_FILE)[: 1 + int8]},
            calibration_temperature=vars(model.config).get(TEMPERATURE_FIELD),
            versions={package: version(package) for package in ("macs-hf", "torch", "transformers", *NEEDED)},
            model=name or type(model).__name__,
            **found,
            **metadata,
        )
        report.save(staged)
        write_card(report, staged, license=license, name=folder.resolve().name)
        (folder / "onnx").mkdir(parents=True, exist_ok=True)
        (folder / INT8_FILE).unlink(missing_ok=True)
        for path in sorted(path for path in staged.rglob("*") if path.is_file()):
            path.replace(folder / path.relative_to(staged))
    return report


NEEDED = ("onnx", "onnxruntime", "onnxscript")


def check_request(folder: Path, *, int8: bool, has_images: bool) -> None:
    """Refuse, before anything is loaded, what cannot end well: a missing extra, int8 without images, a full folder."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ImportError(f"Exporting needs packages that are not installed: pip install {' '.join(missing)}.")
    if int8 and not has_images:
        raise ArgumentError(
            "int8", "needs images: held-out ones to set ranges, and test images. Name a dataset.", True
        )
    found = [path.name for path in folder.iterdir()] if folder.exists() else []
    others = [name for name in found if name not in (LOCK_FILE, IDENTITY_FILE) and not name.startswith(DRAFT)]
    if others and EXPORT_FILE not in others:
        message = "holds files that are no earlier export, which would be overwritten. Choose an empty folder."
        raise ArgumentError("output_dir", message, str(folder))


def described_processor(processor: Any) -> Any:
    """The processor itself or, for timm's, which is code that only timm runs, an equal one that others can read."""
    if not isinstance(processor, TimmProcessor):
        return processor
    settings = processor.data_config
    _, height, width = settings["input_size"]
    resized = [math.floor(side / settings["crop_pct"]) for side in (height, width)]
    if settings["crop_mode"] == "center" and height == width:
        size = {"shortest_edge": resized[0]}
    elif settings["crop_mode"] == "squash":
        size = {"height": resized[0], "width": resized[1]}
    else:
        raise ValueError(
            f"crop_mode={settings['crop_mode']!r} for images of {height} x {width} pixels has no description that "
            "other runtimes read. Export a model of square images whose crop_mode is 'center' or 'squash'."
        )
    return BitImageProcessor(
        size=size,
        crop_size={"height": height, "width": width},
        resample=Image.Resampling[settings["interpolation"].upper()],
        image_mean=list(settings["mean"]),
        image_std=list(settings["std"]),
    )


# ---- The float32 file ----


class LogitsOnly(nn.Module):
    """A copy of a classifier on the CPU, in float32 and evaluation mode, that returns nothing but its logits."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        for name, tensor in model.state_dict().items():
            if not tensor.isfinite().all():
                raise ValueError(
                    f"{type(model).__name__} cannot be exported: its weights are broken, {name} is not finite."
                )
        self.model = copy.deepcopy(model)
        self.cpu().float().eval()
        # Fused attention has strides of its own, which torch's exporter does not follow (Swin).
        self.model.set_attn_implementation("eager")

    def forward(self, pixel_values: Tensor) -> Tensor:
        return logits_of(self.model(pixel_values=pixel_values)).float()


def write_onnx(network: nn.Module, image_size: tuple[int, int], path: str | PathLike) -> None:
    """Write a network as ONNX, for batches of any size."""
    from onnxscript.ir.passes.common import ClearMetadataAndDocStringPass

    try:
        program = torch.onnx.export(
            network,
            (torch.zeros(2, 3, *image_size),),
            dynamo=True,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes={INPUT: {0: torch.export.Dim("batch")}},
            verbose=False,
        )
    except torch.onnx.errors.OnnxExporterError as error:
        reason = str(error.__cause__ or error).strip().partition("\n")[0]
        raise ValueError(f"torch cannot export {type(network.model).__name__} to ONNX: {reason}") from error
    ClearMetadataAndDocStringPass()(program.model)  # lines of source, with the paths of this machine
    program.save(str(path))


class OnnxClassifier:
    """
    Logits of an exported file, by onnxruntime on the CPU.

    Args:
        path (`str` or `os.PathLike`): `onnx/model.onnx`, for instance.

    Example:

    ```python
    >>> classifier = OnnxClassifier("exported/onnx/model_quantized.onnx")
    >>> processor = AutoImageProcessor.from_pretrained("exported")
    >>> classifier(processor(image, return_tensors="np")["pixel_values"])
    ```
    """

    def __init__(self, path: str | PathLike) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3  # hints about its own optimisations are of no use to a caller
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def __call__(self, pixel_values: np.ndarray) -> np.ndarray:
        """Images `(batch, 3, height, width)`, normalised, to logits `(batch, classes)`."""
        return self._session.run([OUTPUT], {INPUT: pixel_values})[0]


def _agreement(network: nn.Module, path: Path, processor: Any, test: Dataset | None) -> dict[str, Any]:
    """How well the float32 file agrees with the model, as fields of the report."""
    if test is None:
        images, where = sample_photographs(processor), "crops of the two photographs that come with scikit-learn"
    else:
        chosen = Subset(test, subset(len(test), CHECKED_IMAGES, seed=0))
        images, where = next(iter(DataLoader(chosen, batch_size=CHECKED_IMAGES)))[INPUT], "test images"
    # Batches of several sizes, one among them: a graph may have taken the size it was traced with for a constant.
    parts = [part for part in (images[:1], *images[1:].split(50)) if len(part)]
    classifier = OnnxClassifier(path)
    with torch.inference_mode():
        expected = torch.cat([network(part) for part in parts]).numpy()
    found = np.concatenate([classifier(part.numpy()) for part in parts])
    difference, largest = float(np.abs(found - expected).max()), float(np.abs(expected).max())
    if not difference <= TOLERANCE * max(largest, 1.0):
        raise ValueError(
            f"The ONNX file gives other logits than the model, by up to {difference:.3g} where the largest is "
            f"{largest:.3g}: the exporter does not translate {type(network.model).__name__} correctly."
        )
    same = int((found.argmax(1) == expected.argmax(1)).sum())
    facts = {"checked_on": where, "checked": len(found), "same_predictions": same}
    return facts | {"largest_difference": difference, "largest_logit": largest}


def sample_photographs(processor: Any) -> Tensor:
    """Crops of the two photographs that come with scikit-learn, prepared: real images where no dataset is given."""
    from sklearn.datasets import load_sample_images

    crops = [photo[:side, -side:] for photo in load_sample_images().images for side in range(64, len(photo), 48)]
    return torch.cat([processor(Image.fromarray(crop), return_tensors="pt")[INPUT] for crop in crops]).float()


def _predict(path: Path, dataset: Dataset, batch_size: int, screen: Screen, label: str) -> tuple[Tensor, Tensor]:
    """Logits of a file, and labels."""
    classifier, logits, labels = OnnxClassifier(path), [], []
    with screen.phase(f"{label} on {len(dataset):,} images", len(dataset)) as bar:
        for batch in DataLoader(dataset, batch_size=batch_size):
            logits.append(torch.from_numpy(classifier(batch[INPUT].numpy())))
            labels.append(batch["labels"])
            bar.update(len(labels[-1]))
    return torch.cat(logits), torch.cat(labels)


# ---- The int8 file ----


def _int8(
    staged: Path, held_out: Dataset, test: Dataset, float32: SampleRows, batch_size: int, screen: Screen
) -> dict[str, Any]:
    """Write the int8 file, and measure it against the rows of the float32 file; returns fields of the report."""
    source, target = staged / FLOAT32_FILE, staged / INT8_FILE
    chosen = Subset(held_out, subset(len(held_out), RANGE_IMAGES, seed=0))
    with screen.phase(f"writing the int8 file, with ranges of {len(chosen):,} images"):
        quantize(source, target, (batch[INPUT].numpy() for batch in DataLoader(chosen, batch_size=batch_size)))
    reference, labels = _predict(source, held_out, batch_size, screen, "temperature of float32")
    logits, _ = _predict(target, held_out, batch_size, screen, "temperature of int8")
    temperature, reason = refitted_temperature(reference, logits, labels)
    divide_logits(target, temperature)
    rows = SampleRows.from_logits(*_predict(target, test, batch_size, screen, "testing int8"))
    with screen.phase("computing intervals"):
        compared = compare(rows, float32)
    fields = {"int8": measure(rows), "int8_temperature": temperature, "temperature_reason": reason}
    fields |= {"range_images": len(chosen), "temperature_images": len(held_out)}
    fields["differences"] = {
        name: Difference(value=found.difference, low=found.low, high=found.high, verdict=found.verdict)
        for name, found in compared.items()
        if name in COMPARED
    }
    return fields


def quantize(source: str | PathLike, target: str | PathLike, images: Iterable[np.ndarray]) -> None:
    """Write an int8 version (QDQ) of an ONNX file, with the ranges of activations of batches of held-out images."""
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    inputs, products = ({INPUT: batch} for batch in images), ["Conv", "Gemm", "MatMul"]
    # Symbolic shapes fail on some operators, and are not needed: only the batch has no fixed size.
    quant_pre_process(str(source), str(target), skip_symbolic_shape=True)
    nodes, options = onnx.load(target).graph.node, {}
    head = [node.name for node in nodes if node.op_type in products][-1]
    # With all in 8 bits, the sums between products lose what layer normalisation then magnifies: a ViT's logits
    # are wrong by a third of their spread instead of a thirtieth. Without it, layers pass integers to each other.
    if any(node.op_type == "LayerNormalization" for node in nodes):
        options["op_types_to_quantize"] = products
        options["extra_options"] = {"OpTypesToExcludeOutputQuantization": products}
    quantize_static(
        str(target),
        str(target),
        SimpleNamespace(get_next=lambda: next(inputs, None)),  # what onnxruntime takes ranges from
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,  # times signed weights: what x86 CPUs multiply fastest
        weight_type=QuantType.QInt8,
        per_channel=True,
        nodes_to_exclude=[head],  # 256 values are too few for logits
        **options,
    )


def refitted_temperature(float32: Tensor, int8: Tensor, labels: Tensor) -> tuple[float, str | None]:
    """The best temperature of int8 over that of float32, and why it is 1 if it could not be fitted."""
    # Both see the same images, so that chance moves the ratio far less than either.
    fits = [find_temperature(*checked_samples(logits, labels)) for logits in (float32, int8)]
    reason = fits[0].reason or fits[1].reason
    return (1.0, reason) if reason is not None else (fits[1].value / fits[0].value, None)


def divide_logits(path: str | PathLike, temperature: float) -> None:
    """Put a division by `temperature` at the end of a graph, so that its logits are calibrated."""
    import onnx

    model = onnx.load(path)
    raw = f"{OUTPUT}_before_{TEMPERATURE_FIELD}"
    for node in model.graph.node:
        node.output[:] = [raw if name == OUTPUT else name for name in node.output]
    divisor = onnx.numpy_helper.from_array(np.array(temperature, np.float32), TEMPERATURE_FIELD)
    model.graph.initializer.append(divisor)
    model.graph.node.append(onnx.helper.make_node("Div", [raw, TEMPERATURE_FIELD], [OUTPUT], name=TEMPERATURE_FIELD))
    onnx.checker.check_model(model)
    onnx.save(model, path)


# ---- The card ----


TEMPLATE = Path(__file__).parent / "publishing" / "templates" / "export_card.md"


def write_card(report: ExportReport, folder: str | PathLike, *, name: str, license: str | None = None) -> None:
    """Write `README.md` into an exported folder that will be called `name`."""
    data = ModelCardData(
        license=license,
        library_name="transformers.js",
        pipeline_tag="image-classification",
        base_model=report.model if is_hub_id(report.model) else None,
        datasets=[report.dataset] if report.dataset is not None and is_hub_id(report.dataset) else None,
        tags=["onnx", "transformers.js", "image-classification", "calibration", "macs"],
    )
    card = rendered(
        TEMPLATE,
        metadata=data.to_yaml(),
        name=name,
        report=report,
        measured=table_markdown(measured_table(report)) if report.float32 is not None else "",
        interval=interval_text,
        temperature=temperature_sentence(report) if report.int8 is not None else "",
    )
    ModelCard(card).save(Path(folder) / "README.md")


def measured_table(report: ExportReport) -> Table:
    """The metrics of the files and, if there is an int8 file, by how much they differ."""
    if report.int8 is None:
        return metric_table({"float32": report.float32})
    found, changes = metric_table({"float32": report.float32, "int8": report.int8}), {}
    for name, change in report.differences.items():
        shown = METRICS[name]
        difference = interval_text(change, shown.scale, digits=2 if shown.scale == 100 else 4, sign="+")
        changes[shown.title] = f"{difference}, {change.verdict}"
    return Table((*found.header, "int8 - float32"), [[*row, changes.get(row[0], "")] for row in found.rows])


def temperature_sentence(report: ExportReport) -> str:
    """What happened to the temperature of the int8 file."""
    if report.temperature_reason is not None:
        return f"Whether int8 needs another temperature could not be found out: {report.temperature_reason}."
    return (
        f"On {report.temperature_images:,} held-out images int8 needs {report.int8_temperature:.4f} times the "
        "temperature of float32: the int8 file divides its logits by that."
    )
