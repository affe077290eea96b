"""Run under `accelerate launch` by test_calibration_callback.py: each process writes what it measured."""

import sys

from tiny import Images, build, end_process
from transformers import Trainer, TrainingArguments

from macs_hf import CalibrationCallback


def main(output_dir: str) -> None:
    args = TrainingArguments(
        output_dir, per_device_eval_batch_size=8, report_to="none", disable_tqdm=True, use_cpu=True
    )
    trainer = Trainer(
        model=build("vit"),
        args=args,
        eval_dataset=Images(22, seed=1),
        preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
    )
    trainer.add_callback(CalibrationCallback(trainer))
    end_process(output_dir, trainer.evaluate())


if __name__ == "__main__":
    main(sys.argv[1])
