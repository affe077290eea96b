"""Attacks by the words of a command, by files of settings and by variables of the environment."""

import pytest
from attacks.changes import write
from attacks.conftest import QUICK, Attack
from loopback_hub.server import ALICE


# Values that an argument of `macs-hf train` cannot have, beyond those of tests/cli/test_train_arguments.py. The line
# names the argument, but for those that are named by their value.
NAMED = """
num_train_epochs=1e400 max_steps=1.5 optim=nonsense ema_decay=1 do_eval=false enable_jit_checkpoint=true
eval_strategy=sometimes deepspeed=zero.json method=mcas lambda_margin=nan perturbation=fog label_smoothing_factor=2
dataset_config=nope ood_dataset=data group_column=image train_split=nope train_split=test calibration_split=nope
split=nope split=train image_column=label label_column=image data_fraction=nan data_fraction=1e-9 max_train_samples=1
max_eval_samples=0 cache_bytes=-1 corruptions=mnist model_revision=nope license=../../x
"""
OTHERWISE = """
dataset='' dataset=nope dataset=nope/nope dataset=run/README.md dataset=model model='' model=nope/deep/er
dataset=https://huggingface.co/datasets/a/b model=run/checkpoint-99 model=data resume_from_checkpoint=run
"""


def words_of(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize("word", words_of(NAMED + OTHERWISE))
def test_values_of_train(word: str, attack: Attack) -> None:
    attack(f"train --{word}", word.partition("=")[0] if word in words_of(NAMED) else "")


# Other commands, and what their line has to name.
COMMANDS = {
    "train --streaming": "max_steps",
    "train --streaming --max_steps 2 --data_fraction 0.5": "data_fraction",
    "train --hub_model_id alice/x": "--push_to_hub",
    "train --push_to_hub --hub_model_id=": "--hub_model_id",
    "train --lr_scheduler_kwargs '{\"nope\": 1}'": "nope",
    "train --dataloader_drop_last true --per_device_train_batch_size 64": "",
    "train --bf16 --fp16": "bf16",
    "train --save_strategy best": "metric_for_best_model",
    "train --dataset photos/train/ant": "",
    "train --model model --image_size 100000": "",
    # Words that are no arguments
    "train --learnin_rate 3": "--learning_rate",
    "!frobnicate": "frobnicate",
    "!evaluate": "--dataset",
    "!compare run": "two runs",
    # Measuring
    "evaluate --corruption_samples 5": "--corruptions",
    "evaluate --dataset digits": "classes",
    "evaluate --ood_dataset digit": "--ood_dataset 'digit'",
    "calibrate --private": "--push_to_hub",
    "calibrate --push_to_hub=": "--push_to_hub",
    "!evaluate '' --dataset data": "MODEL",
    "!evaluate tiny --dataset data": "MODEL 'tiny'",
    "!evaluate run/model.safetensors --dataset data": "run/model.safetensors",
    "!export model --output_dir=": "--output_dir",
    "!compare run/samples.parquet other/samples.parquet": "run/samples.parquet",
    "!verify run --dataset photos --cpu": "--split",
    "!push run/README.md alice/x": "run/README.md",
    "!push run alice/x --revision=": "--revision",
    # Where results go: never over those of another run, nor into what is read
    "train --output_dir model/config.json": "model/config.json",
    "train --model model --output_dir model": "--output_dir 'model'",
    "photos --output_dir photos/train/new": "--output_dir",
    "train --output_dir run --seed 1": "seed: 0, now 1",
    "train --output_dir run --max_eval_samples 4": "max_eval_samples",
    "evaluate --output_dir run/x/..": "another run",
    "calibrate --output_dir data/train": "--output_dir",
    "train --output_dir /proc/nope": "/proc/nope",
    "evaluate --output_dir run/README.md": "run/README.md",
    f"train --output_dir {'x' * 300}": "xxx",
    # Secrets
    f"train --run_name {ALICE}": "--run_name",
    f"train --dataset https://alice:{ALICE}@huggingface.co/data": "--dataset",
    f"train --hub_token {ALICE}": "hub_token",
    f"train --unknown {ALICE}": "--unknown",
    f"!verify run --model_revision {ALICE}": "--model_revision",
    f"!push run alice/x --revision {ALICE}": "--revision",
    "train --run_name my-wandb-key-0123456789": "WANDB_API_KEY",
}


@pytest.mark.parametrize(("words", "named"), COMMANDS.items(), ids=COMMANDS)
def test_commands(words: str, named: str, attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "my-wandb-key-0123456789")
    printed = attack(words, named)
    assert ALICE not in printed and "my-wandb-key" not in printed


BOMB = "a: &a [x, x]\n" + "".join(f"{new}: &{new} [*{old}, *{old}, *{old}, *{old}]\n" for old, new in ("ab", "bc"))
SETTINGS = {
    "seed: [1, 2]\n": "seed",
    "learning_rate: .nan\n": "learning_rate",
    "method: [macs]\n": "method",
    "learnin_rate: 1\n": "--learning_rate",
    "output_dir: run\nseed: 3\n": "seed: 0, now 3",
    f"run_name: {ALICE}\n": "--run_name",
    f"{ALICE}: 1\n": "REDACTED",
    BOMB: "--a",
    "seed: !!python/object/apply:os.system ['touch executed']\n": "settings.yaml",
}
# Flags win over settings, so those that settings are to change are left out.
BASE = QUICK.replace("--num_train_epochs 1 ", "").replace(" --report_to none", "")


@pytest.mark.parametrize(("settings", "named"), SETTINGS.items(), ids=[repr(text)[:40] for text in SETTINGS])
def test_settings(settings: str, named: str, attack: Attack) -> None:
    printed = attack(f"!train settings.yaml {BASE} --dataset data", named, write("settings.yaml", settings))
    assert ALICE not in printed


def test_settings_that_are_not_there(attack: Attack) -> None:
    attack("!train missing.yaml", "missing.yaml")
    attack("!train data.yaml", "data.yaml", write("data.yaml/x", ""))
