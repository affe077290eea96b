"""The arguments of `macs-hf train`: what to train on what, beside those of `MaCSTrainingArguments`."""

import difflib
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import HfArgumentParser

from ..disk.secrets import refuse_secrets
from ..disk.terminal_text import refuse_nul
from ..models.loading import FROM_SCRATCH
from ..objective import METHODS
from ..training.arguments import MaCSTrainingArguments
from .checks import ALWAYS, check_gallery, check_training_arguments, check_wishes
from .folders import folder_name
from .settings import read_settings


PROGRAM = "macs-hf train"
USAGE = f"{PROGRAM} [SETTINGS.yaml] [--ARGUMENT VALUE ...]"


SCRATCH_LEARNING_RATE, FINE_TUNING_LEARNING_RATE = 5e-3, 1e-4

# Arguments that must be at least 1, if given.
SIZES = ("corruption_samples", "image_size", "max_train_samples", "max_eval_samples", "max_calibration_samples")
SIZES += ("shuffle_buffer", "gallery")


@dataclass
class ScriptArguments:
    """What to train, on what."""

    dataset: str = field(default="digits", metadata={"help": "Benchmark name, Hub id or local folder."})
    dataset_config: str | None = field(default=None, metadata={"help": "Configuration of a Hub dataset."})
    image_column: str | None = field(default=None, metadata={"help": "Needed if there are several image columns."})
    label_column: str | None = field(default=None, metadata={"help": "Needed if there are several class labels."})
    train_split: str | None = field(default=None, metadata={"help": "Split to train on."})
    calibration_split: str | None = field(
        default=None, metadata={"help": "Split that fits the temperature; a tenth of train if there is none."}
    )
    split: str | None = field(default=None, metadata={"help": "Split to test on."})
    group_column: str | None = field(
        default=None, metadata={"help": "Column to group test images by, such as a camera or a site."}
    )
    ood_dataset: str | None = field(
        default=None, metadata={"help": "Dataset of images that belong to none of the classes, to test with."}
    )
    ood_split: str | None = field(default=None, metadata={"help": "Split of ood_dataset; test if there is one."})
    model: str = field(
        default="tiny", metadata={"help": "`tiny`, `small`, `medium`, a backbone, timm or Hub id, a folder."}
    )
    model_revision: str | None = field(default=None, metadata={"help": "Branch, tag or commit of the model."})
    image_size: int | None = field(default=None, metadata={"help": "Height and width of the input, in pixels."})
    channels_last: bool = field(
        default=False, metadata={"help": "Keep convolutions in channels-last memory: faster on most devices."}
    )
    method: str = field(default="macs", metadata={"help": f"Sets the objective: {', '.join(METHODS)}."})
    data_fraction: float = field(default=1.0, metadata={"help": "Class-balanced share of the training set."})
    max_train_samples: int | None = field(default=None, metadata={"help": "Maximum number of training images."})
    skip_bad_images: bool = field(default=False, metadata={"help": "Leave out images that cannot be read."})
    streaming: bool = field(
        default=False, metadata={"help": "Read training images when they are needed; needs max_steps."}
    )
    cache_bytes: int = field(
        default=2_000_000_000, metadata={"help": "Memory for decoded images, in bytes; 0 decodes them at each pass."}
    )
    shuffle_buffer: int = field(default=2000, metadata={"help": "With streaming: images each worker chooses from."})
    max_eval_samples: int | None = field(
        default=None,
        metadata={"help": "Maximum number of validation and of test images (5,000 with streaming)."},
    )
    max_calibration_samples: int | None = field(
        default=None, metadata={"help": "Maximum number of validation images, which fit the temperature."}
    )
    horizontal_flip: bool | None = field(default=None, metadata={"help": "Mirror at random; off for digits."})
    corruptions: Literal["auto", "cifar", "imagenet", "none"] = field(
        default="auto", metadata={"help": "Parameters of the corruption benchmark; auto fits the input size."}
    )
    corruption_samples: int | None = field(default=None, metadata={"help": "Corrupt at most this many test images."})
    corruption_design: Literal["auto", "crossed", "spread"] = field(
        default="auto",
        metadata={
            "help": "crossed: every image under all corruptions; spread: each image under one; auto spreads 1,900 or "
            "more images."
        },
    )
    gallery: int | None = field(
        default=None, metadata={"help": "Write mistakes.png with this many of the most confident wrong test images."}
    )
    publish_gallery: bool = field(
        default=False, metadata={"help": "Show mistakes.png in the card, and push it with the model."}
    )
    license: str | None = field(default=None, metadata={"help": "Licence of the model; if not given, of its base."})
    quiet: bool = field(default=False, metadata={"help": "Print warnings and errors only."})
    verbose: bool = field(
        default=False, metadata={"help": "Print what other libraries print too, as lines without a bar."}
    )

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method={self.method!r} is not one of {', '.join(METHODS)}.")
        for name in SIZES:
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1.")
        if self.license is not None and not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", self.license):
            raise ValueError(
                f"license={self.license!r} is not a licence name of the Hub, such as apache-2.0: see "
                "https://huggingface.co/docs/hub/repositories-licenses."
            )
        if not 0 < self.data_fraction <= 1:
            raise ValueError(f"data_fraction={self.data_fraction} must lie in (0, 1].")
        check_gallery(self.gallery, self.publish_gallery)


CLASSES = (ScriptArguments, MaCSTrainingArguments)
# The names of all flags.
ARGUMENTS = tuple(each.name for cls in CLASSES for each in fields(cls) if each.init)


def script_defaults(script: ScriptArguments) -> dict[str, Any]:
    """What this command sets differently from `TrainingArguments`; flags and settings files win."""
    on_gpu = torch.cuda.is_available()
    has_bf16 = on_gpu and torch.cuda.is_bf16_supported()
    # A stream has no epochs: ten times during training.
    when = {"eval_steps": 0.1, "save_steps": 0.1} if script.streaming else {}
    names = (folder_name(script.dataset), folder_name(script.model), script.method)
    return {
        "output_dir": str(Path("runs", "-".join(names))),
        "num_train_epochs": 20,
        "per_device_train_batch_size": 64,
        "per_device_eval_batch_size": 256,
        "learning_rate": SCRATCH_LEARNING_RATE if script.model in FROM_SCRATCH else FINE_TUNING_LEARNING_RATE,
        "weight_decay": 0.05,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.1,
        "use_cpu": not torch.accelerator.is_available(),  # else processes without a GPU would not find each other
        "bf16": has_bf16,
        "fp16": on_gpu and not has_bf16,
        "logging_steps": 10,
        "eval_strategy": "steps" if script.streaming else "epoch",
        "save_strategy": "steps" if script.streaming else "epoch",
        "save_total_limit": 1,
        "seed": 0,
        "dataloader_pin_memory": on_gpu,
        "log_level": "warning" if script.verbose else "error",
        "stop_on_signals": True,
        **when,
    }


def parse(argv: list[str]) -> tuple[ScriptArguments, MaCSTrainingArguments]:
    """The arguments of a command line, whose first word may be a file of settings, checked."""
    parser, argv = make_parser(argv)
    script, args, unknown = parser.parse_args_into_dataclasses(argv, return_remaining_strings=True)
    if unknown:
        word = unknown[0].lstrip("-").partition("=")[0]
        longer = [name for name in ARGUMENTS if word and name.startswith(word)]
        similar = longer or difflib.get_close_matches(word, ARGUMENTS, n=1, cutoff=0.5)
        meant = f" Did you mean --{similar[0]}?" if similar else ""
        raise ValueError(f"Unknown arguments: {' '.join(unknown)}.{meant} --help-all lists all arguments.")
    refuse_secrets({name: value for name, value in {**vars(script), **vars(args)}.items() if name != "hub_token"})
    refuse_nul({**vars(script), **vars(args)})
    check_wishes(parser.parse_known_args(argv)[0])
    for name in ALWAYS:
        setattr(args, name, name == "do_eval" and args.eval_strategy != "no")  # what is recorded does not depend on it
    check_training_arguments(args)
    return script, args


def from_the_start(argv: list[str]) -> list[str]:
    """The words of a command line, without the checkpoint that the run is to continue from."""
    words, kept = iter(argv), []
    for word in words:
        flag, equals, _ = word.partition("=")
        if flag.replace("-", "_") != "__resume_from_checkpoint":
            kept.append(word)
        elif not equals:
            next(words)  # its value
    return kept


def make_parser(argv: list[str]) -> tuple[HfArgumentParser, list[str]]:
    """A parser with the defaults that the dataset, the model and the method ask for, and the flags it is for."""
    settings = {}
    refuse_nul({"settings": argv[:1]})
    if argv and argv[0].endswith((".json", ".yaml", ".yml")):
        settings, argv = read_settings(argv[0], *CLASSES), argv[1:]
    usual = {"allow_abbrev": False, "add_help": False, "prog": PROGRAM, "usage": USAGE}
    first = HfArgumentParser(ScriptArguments, **usual)
    first.set_defaults(**{name: value for name, value in settings.items() if hasattr(ScriptArguments, name)})
    script = first.parse_args_into_dataclasses(argv, return_remaining_strings=True)[0]
    parser = HfArgumentParser(CLASSES, **usual)
    # transformers' own default of these is False, and means nothing: None tells it from a wish.
    parser.set_defaults(**script_defaults(script) | METHODS[script.method] | dict.fromkeys(ALWAYS) | settings)
    return parser, argv
