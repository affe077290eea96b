"""Train an image classifier with Margin and Consistency Supervision, calibrate it, measure it, and push it.

python examples/train.py                                      # embedded data, a small network, no download
python examples/train.py --dataset cifar10 --model resnet50   # Hub ids, short names and local folders
python examples/train.py settings.yaml --learning_rate 1e-3   # JSON or YAML, flags win
accelerate launch --num_processes 8 examples/train.py ...     # one process per GPU
python examples/train.py ... --push_to_hub --hub_model_id user/name   # after `hf auth login`
python examples/train.py --streaming --max_steps 100000 ...   # training images that do not fit on disk

This is `macs-hf train`. `main` in `macs_hf/cli/train.py` is its story.
`--help` lists the common arguments, `--help-all` all of them. Ctrl-C saves a checkpoint, and the same command goes on
from it.
"""

import sys

from macs_hf.cli.train import main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
