"""Attacks by the words of a command, by files of settings and by variables of the environment."""

import pytest
from attacks.changes import write
from attacks.conftest import QUICK, Attack
from loopback_hub.server import ALICE


# Values that an argument of `macs-hf train` cannot have; the line names the argument.
TRAIN = {
    # Length, optimiser, batches
    "num_train_epochs": "0 -1 nan 1e400 many",
    "max_steps": "0 -2 1.5",
    "learning_rate": "-1 nan inf fast",
    "weight_decay": "-1",
    "warmup_steps": "-1 nan 3",
    "adam_beta1": "1",
    "adam_beta2": "-0.1",
    "adam_epsilon": "-1",
    "max_grad_norm": "nan",
    "optim": "nonsense",
    "optim_target_modules": "x",
    "lr_scheduler_type": "nonsense",
    "ema_decay": "1 nan",
    "per_device_train_batch_size": "0 -4 2.5",
    "per_device_eval_batch_size": "0 -1",
    "gradient_accumulation_steps": "0",
    "eval_accumulation_steps": "0",
    "dataloader_num_workers": "-1 1000000",
    "logging_steps": "0",
    "eval_steps": "0",
    "save_steps": "-5",
    "eval_delay": "-1",
    "seed": "-1 4294967296 1.5",
    "data_seed": "-3",
    # What is always done, or never
    "do_train": "false",
    "do_eval": "false",
    "do_predict": "false",
    "train_sampling_strategy": "group_by_length",
    "include_num_input_tokens_seen": "true",
    "ignore_data_skip": "true",
    "use_liger_kernel": "true",
    "prediction_loss_only": "true",
    "batch_eval_metrics": "true",
    "eval_do_concat_batches": "false",
    "include_for_metrics": "inputs",
    "enable_jit_checkpoint": "true",
    "label_names": "nothing",
    "metric_for_best_model": "eval_nope",
    "eval_strategy": "sometimes",
    "report_to": "clearml no",
    "deepspeed": "zero.json",
    "torch_compile_mode": "nonsense",
    # The objective
    "method": "mcas ''",
    "lambda_margin": "-1 nan",
    "lambda_consistency": "inf",
    "margin": "nan",
    "consistency_fraction": "0 1.5",
    "perturbation": "fog",
    "noise_std": "-1",
    "focal_gamma": "-1",
    "label_smoothing_factor": "2",
    "mixup_alpha": "-1",
    # Data and model
    "dataset": "'' nope nope/nope run/README.md model https://huggingface.co/datasets/a/b",
    "dataset_config": "nope",
    "ood_dataset": "data",
    "group_column": "image ''",
    "train_split": "nope test",
    "calibration_split": "nope",
    "split": "nope train",
    "image_column": "label nope",
    "label_column": "image",
    "data_fraction": "0 nan 1e-9",
    "max_train_samples": "0 1",
    "max_eval_samples": "0",
    "corruption_samples": "0",
    "shuffle_buffer": "0",
    "cache_bytes": "-1",
    "corruptions": "mnist",
    "model": "'' nope/deep/er run/checkpoint-99 data",
    "model_revision": "nope",
    "image_size": "0",
    "license": "../../x",
    "resume_from_checkpoint": "'' run",
}
# The line does not name it with its flag.
OTHERWISE = ("dataset", "model", "resume_from_checkpoint")


def cases() -> list[tuple[str, str]]:
    return [(name, value) for name, values in TRAIN.items() for value in values.split()]


@pytest.mark.parametrize(("name", "value"), cases())
def test_values_of_train(name: str, value: str, attack: Attack) -> None:
    attack(f"train --{name}={value}", "" if name in OTHERWISE else name)


# Other commands, and what their line has to name.
COMMANDS = {
    "train --streaming": "max_steps",
    "train --streaming --max_steps 2 --data_fraction 0.5": "data_fraction",
    "train --streaming --max_steps 2 --max_train_samples 3": "max_train_samples",
    "train --warmup_steps 9 --max_steps 8": "warmup_steps",
    "train --hub_model_id alice/x": "--push_to_hub",
    "train --hub_private_repo true": "--push_to_hub",
    "train --push_to_hub --hub_model_id=": "--hub_model_id",
    "train --quiet true --verbose true": "--quiet",
    "train --optim adafactor --optim_args x": "--optim_args",
    "train --lr_scheduler_kwargs '{'": "",
    "train --lr_scheduler_kwargs '{\"nope\": 1}'": "nope",
    "train --dataloader_persistent_workers true": "num_workers",
    "train --dataloader_num_workers 1 --dataloader_prefetch_factor 0": "--dataloader_prefetch_factor",
    "train --dataloader_drop_last true --per_device_train_batch_size 64": "",
    "train --bf16 --fp16": "bf16",
    "train --accelerator_config nope.json": "nope.json",
    "train --gradient_checkpointing true": "",
    "train --save_strategy best": "metric_for_best_model",
    "train --ood_split test": "--ood_dataset",
    "train --dataset photos --split train": "split",
    "train --calibration_split test": "validation_split",
    "train --dataset photos/train/ant": "",
    "train --model model --image_size 100000": "",
    # Words that are no arguments
    "train hello": "hello",
    "train --learnin_rate 3": "--learning_rate",
    "!frobnicate": "frobnicate",
    "!evaluate": "--dataset",
    "!compare '' run": "runs",
    "!compare run": "two runs",
    "!push run": "REPO",
    # Measuring
    "evaluate --batch_size 0": "--batch_size",
    "evaluate --batch_size x": "--batch_size",
    "evaluate --cache_bytes -1": "--cache_bytes",
    "evaluate --image_size 0": "--image_size",
    "evaluate --corruptions mnist": "--corruptions",
    "evaluate --corruption_samples 5": "--corruptions",
    "evaluate --split nope": "--split",
    "evaluate --dataset digits": "classes",
    "evaluate --model_revision main": "revision",
    "evaluate --output_dir=": "--output_dir",
    "evaluate --ood_dataset=": "--ood_dataset",
    "calibrate --corruption_design crossed": "--corruptions",
    "calibrate --private": "--push_to_hub",
    "calibrate --calibration_split test": "split",
    "calibrate --calibration_split nope": "--calibration_split",
    "calibrate --push_to_hub=": "--push_to_hub",
    "!evaluate '' --dataset data": "MODEL",
    "!evaluate model --dataset ''": "--dataset",
    "!evaluate tiny --dataset data": "MODEL 'tiny'",
    "!evaluate run/nope --dataset data": "run/nope",
    "!evaluate run/model.safetensors --dataset data": "run/model.safetensors",
    "!export model --output_dir=": "--output_dir",
    "!compare run/samples.parquet other/samples.parquet": "run/samples.parquet",
    "!compare run nope": "nope",
    "!compare model run": "model",
    "!verify model": "model",
    "!verify run --dataset ' '": "--dataset",
    "!verify run --dataset photos --cpu": "--split",
    "!push run/README.md alice/x": "run/README.md",
    "!push . alice/x": "safetensors",
    "!push nope alice/x": "nope",
    "!push data alice/x": "safetensors",
    "!push run alice/x --revision=": "--revision",
    # Where results go: never over those of another run, nor into what is read
    "train --output_dir model/config.json": "model/config.json",
    "train --output_dir model": "another run",
    "train --model model --output_dir model": "--output_dir 'model'",
    "train --output_dir data": "--output_dir 'data'",
    "photos --output_dir photos/train/new": "--output_dir",
    "train --output_dir run --seed 1": "seed: 0, now 1",
    "train --output_dir run --max_eval_samples 4": "max_eval_samples",
    "train --output_dir run --resume_from_checkpoint other/checkpoint-2 --seed 1": "seed: 0, now 1",
    "train --output_dir other --method ce": "method",
    "evaluate --output_dir model": "--output_dir 'model'",
    "evaluate --output_dir run": "another run",
    "evaluate --output_dir run/x/..": "another run",
    "calibrate --output_dir run": "another run",
    "calibrate --output_dir data/train": "--output_dir",
    "train --output_dir /proc/nope": "/proc/nope",
    "train --output_dir /dev/null/x": "/dev/null/x",
    "calibrate --output_dir photos/test/ant/0.png/x": "photos/test/ant/0.png/x",
    "evaluate --output_dir run/README.md": "run/README.md",
    f"train --output_dir {'x' * 300}": "xxx",
    # Secrets
    f"train --run_name {ALICE}": "--run_name",
    f"train --model_revision {ALICE}": "--model_revision",
    f"train --hub_model_id alice/{ALICE}": "--hub_model_id",
    f"train --dataset https://alice:{ALICE}@huggingface.co/data": "--dataset",
    f"train --hub_token {ALICE}": "hub_token",
    f"train --unknown {ALICE}": "--unknown",
    f"evaluate --output_dir {ALICE}": "--output_dir",
    f"calibrate --push_to_hub alice/{ALICE}": "--push_to_hub",
    f"!export model --output_dir out --model_revision {ALICE}": "--model_revision",
    f"!verify run --model_revision {ALICE}": "--model_revision",
    f"!push run alice/x --revision {ALICE}": "--revision",
    "train --run_name my-wandb-key-0123456789": "WANDB_API_KEY",
    "evaluate --split my-wandb-key-0123456789": "WANDB_API_KEY",
}


@pytest.mark.parametrize(("words", "named"), COMMANDS.items(), ids=COMMANDS)
def test_commands(words: str, named: str, attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "my-wandb-key-0123456789")
    printed = attack(words, named)
    assert ALICE not in printed and "my-wandb-key" not in printed


BOMB = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}, *{old}, *{old}, *{old}, *{old}]\n"
    for old, new in zip("abcde", "bcdef", strict=True)
)
SETTINGS = {
    **{f"seed: {value}\n": "seed" for value in ("1:30:b", "1.5", "true", "[1, 2]", "{a: 1}", "-1")},
    **{f"learning_rate: {value}\n": "learning_rate" for value in ("fast", ".nan", "nan")},
    "streaming: perhaps\n": "streaming",
    "method: mcas\n": "--method",
    "method: [macs]\n": "method",
    "corruptions: mnist\n": "--corruptions",
    "learnin_rate: 1\n": "--learning_rate",
    "__class__: 1\n": "__class__",
    "num_train_epochs: 0\n": "--num_train_epochs",
    "output_dir: run\nseed: 3\n": "seed: 0, now 3",
    "output_dir: data\n": "--output_dir",
    "output_dir: ''\n": "--output_dir",
    'output_dir: "a\\0b"\n': "--output_dir",
    "do_train: false\n": "--do_train",
    f"run_name: {ALICE}\n": "--run_name",
    f"{ALICE}: 1\n": "REDACTED",
    BOMB: "--a",
    **dict.fromkeys(
        [
            *("1: 2\n", "- seed\n", "just words\n", "42\n", "seed: [1\n", "seed: 1\n\tmethod: ce\n", "{" * 5000),
            *("seed: *nothing\n", "--- {seed: 1}\n--- {seed: 2}\n", "\xff\xfe\x00"),
            "seed: !!python/object/apply:os.system ['touch executed']\n",
        ],
        "settings.yaml",
    ),
}
# Flags win over settings, so those that settings are to change are left out.
BASE = QUICK.replace("--num_train_epochs 1 ", "").replace(" --report_to none", "")


@pytest.mark.parametrize(("settings", "named"), SETTINGS.items(), ids=[repr(text)[:40] for text in SETTINGS])
def test_settings(settings: str, named: str, attack: Attack) -> None:
    content = settings.encode("latin-1")
    printed = attack(f"!train settings.yaml {BASE} --dataset data", named, write("settings.yaml", content))
    assert ALICE not in printed


def test_settings_that_are_not_there(attack: Attack) -> None:
    attack("!train missing.yaml", "missing.yaml")
    attack("!train data.yaml", "data.yaml", write("data.yaml/x", ""))


@pytest.mark.parametrize("words", ["train", "evaluate"])
@pytest.mark.parametrize(("variable", "value"), [("LOCAL_WORLD_SIZE", "0"), ("RANK", "x"), ("WORLD_SIZE", "x")])
def test_variables(variable: str, value: str, words: str, attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    if (variable, words) != ("RANK", "evaluate"):  # of a single process, which needs none
        attack(words, variable)
