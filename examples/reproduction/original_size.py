"""Measure a finished cell again on images that are corrupted at their own size and then resized, as CIFAR-10-C is.

python examples/reproduction/original_size.py TRAINED_FOLDER --dataset DATASET --output_dir FOLDER

The report in FOLDER is that of the trained cell with another corruption table.
"""

import argparse
import dataclasses
import sys
from pathlib import Path

from torch import Tensor
from torchvision.transforms.v2.functional import to_pil_image

from macs_hf.calibration import fold_temperature, folded_temperature
from macs_hf.data.preparing import load_data
from macs_hf.data.sources import source_of
from macs_hf.data.transforms import EvalTransform
from macs_hf.evaluation.corruption_benchmark import ByteImages, evaluate_corruptions, forward_of
from macs_hf.models.loading import load_pretrained
from macs_hf.pixels import PixelStats
from macs_hf.report.report import load_run, save_run


def measure_again(trained: Path, dataset: str, folder: Path) -> None:
    """Write the run of `trained` to `folder`, its test images corrupted before they are resized."""
    run = load_run(trained)
    model, processor = load_pretrained(str(trained))
    temperature = folded_temperature(model)
    fold_temperature(model, 1 / temperature)
    source = source_of(dataset, run.report.dataset_config, test_split=run.report.split)
    splits = load_data(source, ("test",))
    prepare = EvalTransform(processor)

    def resize(image: Tensor) -> Tensor:
        return prepare.to_pixels([to_pil_image(image)])[0]

    table = evaluate_corruptions(
        forward_of(model.eval(), PixelStats.from_processor(processor)),
        ByteImages(splits.test, (splits.image_column, splits.label_column), resize=resize),
        temperature=temperature,
        clean_rows=[run.rows if run.rows_before is None else run.rows_before, run.rows],
        params="cifar",
        when="before_resize",
        design="spread",
        progress=False,
    )
    rows = [run.rows] if run.rows_before is None else [run.rows_before, run.rows]
    save_run(dataclasses.replace(run.report, corruptions=table), rows, folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trained", type=Path, help="The folder of a finished cell.")
    parser.add_argument("--dataset", required=True, help="The dataset that it was tested on.")
    parser.add_argument("--output_dir", type=Path, required=True, help="Where to write the report.")
    options = parser.parse_args(sys.argv[1:])
    measure_again(options.trained, options.dataset, options.output_dir)
