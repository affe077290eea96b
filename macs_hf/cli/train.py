"""`macs-hf train`: train an image classifier, calibrate it, measure it, and push it.

`accelerate launch -m macs_hf.cli.train` starts it on several GPUs; `macs-hf train --help` lists its arguments.
"""

import shlex
import sys
from collections.abc import Sequence

from ..report.run_folder import locked_folder, public_words
from ..training.checkpoints import checkpoint_line
from . import train_steps as steps
from .errors import check_launch, ends_on_signals, plain_errors
from .output import screen_of
from .train_arguments import PROGRAM, argument_names, from_the_start, help_asked_for, parse


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    with plain_errors(PROGRAM, argument_names()):
        if (text := help_asked_for(argv)) is not None:
            print(text)
            return 0
        check_launch()
        script, args = parse(argv)
        steps.start(script, args)
        with (
            locked_folder(args.output_dir, hold=args.process_index == 0),
            ends_on_signals(PROGRAM, lambda: checkpoint_line(args.output_dir)),
            screen_of(script.quiet, script.verbose, bars=not args.disable_tqdm) as screen,
        ):
            source, splits = steps.load_splits(script, args, screen)
            model, processor = steps.load_model(script, args, splits)
            data = steps.prepare_images(source, splits, processor, script, args, screen)
            trainer, checkpoint = steps.build_trainer(model, processor, data, script, args, screen)
            steps.train(trainer, checkpoint)
            report, rows = steps.measure(trainer, data, script, command_of(argv, args.world_size))
            steps.save(trainer, report, rows, data, script, screen)
            steps.publish(trainer, report, script, screen)
    return 0


def command_of(argv: Sequence[str], processes: int) -> str:
    """What to type to make the same run from its start, with as many processes."""
    program = ["macs-hf", "train"]
    if processes > 1:
        program = ["accelerate", "launch", "--num_processes", str(processes), "-m", "macs_hf.cli.train"]
    return shlex.join([*program, *public_words(from_the_start(argv))])


if __name__ == "__main__":
    sys.exit(main())
