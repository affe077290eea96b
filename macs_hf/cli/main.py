"""`macs-hf COMMAND ...`: the commands that work on image classifiers, from training to the page in the browser."""

import argparse
import shlex
import sys
from importlib import import_module

from .. import __version__
from ..report.run_folder import public_words
from .process import ends_on_signals, plain_errors, running


# Each is a module beside this one, loaded when it is asked for, with a function `main(argv)`; but for those in `WORK`.
COMMANDS = {
    "train": "train a classifier, calibrate it, measure it and, if asked, push it",
    "evaluate": "measure any classifier: accuracy, calibration, under corruption",
    "calibrate": "fit a temperature on held-out data, fold it in, save the model",
    "compare": "compare two runs on the same test images, image by image",
    "app": "audit, try and compare classifiers in the browser",
    "export": "write ONNX files, float32 and int8, checked and measured",
    "verify": "measure a published model again, and compare with its report",
    "push": "push a run's model, report, pictures and card to the Hub",
}
EXAMPLES = """\
examples:
  macs-hf train --dataset cifar10 --model resnet50
  macs-hf evaluate user/model --dataset user/photos --corruptions imagenet
  macs-hf calibrate user/model --dataset user/photos --push_to_hub user/new
  macs-hf compare runs/first runs/second
  macs-hf app runs/first
  macs-hf export user/model --output_dir exported --int8 --dataset user/photos
  macs-hf verify user/model
  macs-hf push runs/first user/name

`macs-hf COMMAND --help` lists the options of a command.
"""
# Where their work is. They share `options.py`, since help must not load what work needs.
WORK = {"evaluate": "measure", "calibrate": "measure", "verify": "measure", "export": "export"}


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    with plain_errors("macs-hf"):
        if not argv:
            _parser().print_help()
            return 2
        name = _parser().parse_args(argv[:1]).command
        if name == "train":  # whose help does not load what training needs
            from .train_arguments import help_asked_for

            if (text := help_asked_for(argv[1:])) is not None:
                print(text)
                return 0
        if name in WORK:
            return measure(name, argv[1:])
        return import_module(f".{name}", __package__).main(argv[1:])


def measure(name: str, argv: list[str]) -> int:
    """Run a command of `WORK`."""
    from .options import parser_of

    options = parser_of(name).parse_args(argv)
    with (
        running(name, options),
        ends_on_signals(f"macs-hf {name}", lambda: "The same command starts at the beginning."),
    ):
        from .output import screen_of

        work = getattr(import_module(f".{WORK[name]}", __package__), name)
        command = shlex.join(["macs-hf", name, *public_words(argv)])
        given = vars(options)
        with screen_of(given.get("quiet", False), given.get("verbose", False)) as screen:
            return work(options, command, screen) or 0


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:<10} {text}" for name, text in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="macs-hf",
        usage="macs-hf COMMAND ...",
        description=f"Margin and Consistency Supervision for Hugging Face image classifiers.\n\ncommands:\n{listed}",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"macs-hf {__version__}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    return parser
