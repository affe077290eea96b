"""Attacks by files of settings."""

import os
from pathlib import Path

import pytest
from attacks.changes import write
from attacks.conftest import QUICK, Attack
from loopback_hub.server import ALICE


NEITHER = "can be read neither as YAML nor as JSON"
BOMB = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)

CONFIGURATION = [
    ("seed: 1\nseed: 2\n", "sets 'seed' 2 times. Keep one of them"),
    ('{"seed": 1, "seed": 2}', "sets 'seed' 2 times. Keep one of them"),
    ("seed: 0x10\n", "`seed: '0x10'` must be of type int"),
    ("seed: 1:30\n", "`seed: '1:30'` must be of type int"),
    ("seed: 1.5\n", "`seed: 1.5` must be of type int"),
    ("seed: true\n", "`seed: True` must be of type int"),
    ("seed: null\n", "`seed: None` must be of type int"),
    ("seed: [1, 2]\n", "`seed: [1, 2]` must be of type int"),
    ("seed: {a: 1}\n", "`seed: {'a': 1}` must be of type int"),
    ("seed: -1\n", "--seed -1 must lie in [0, 2**32)"),
    ("learning_rate: fast\n", "`learning_rate: 'fast'` must be of type float"),
    ("learning_rate: .nan\n", "`learning_rate: '.nan'` must be of type float"),
    ("learning_rate: nan\n", "--learning_rate nan must be a finite number"),
    ("streaming: perhaps\n", "`streaming: 'perhaps'` must be of type bool"),
    ("method: mcas\n", "--method 'mcas' is not one of"),
    ("method: [macs]\n", "`method: ['macs']` must be of type str"),
    ("corruptions: mnist\n", "`corruptions: 'mnist'` must be of type"),
    ("report_to: no\n", "--report_to 'no' is not a tracker"),
    ("learnin_rate: 1\n", "Unknown settings ['learnin_rate'] in settings.yaml"),
    ("__class__: 1\n", "Unknown settings ['__class__']"),
    ("1: 2\n", "Unknown settings ['1']"),
    ("- seed\n", "holds a list in place of named settings"),
    ("just words\n", "holds a str in place of named settings"),
    ("42\n", "holds a int in place of named settings"),
    ("seed: [1\n", NEITHER),
    ("seed: 1\n\tmethod: ce\n", NEITHER),
    ("{" * 5000, NEITHER),
    (b"\xff\xfe\x00\x01", NEITHER),
    (b"\x00\x00\x00", NEITHER),
    ("seed: !!python/object/apply:os.system ['touch executed']\n", NEITHER),
    ("!!python/object/apply:os.system ['touch executed']\n", NEITHER),
    ("seed: *nothing\n", NEITHER),
    ("a: &a {b: *a}\n", "Unknown settings ['a']"),
    ("--- {seed: 1}\n--- {seed: 2}\n", NEITHER),
    ("<<: {seed: 1}\n", "Unknown settings"),
    (BOMB, "Unknown settings"),
    (f"run_name: {ALICE}\n", "--run_name holds a token (hf_a...)"),
    (f"hub_model_id: alice/{ALICE}\n", "--hub_model_id holds a token (hf_a...)"),
    (f"{ALICE}: 1\n", "Unknown settings ['REDACTED']"),
    ("output_dir: run\nseed: 3\n", "of another run (seed: 0, now 3, "),
    ("output_dir: data\n", "is inside the dataset's folder"),
    ("dataset: ''\n", "--dataset '' is empty"),
    ("output_dir: ''\n", "--output_dir '' is empty. Name a folder"),
    ("".join(f"k{number}: 1\n" for number in range(30_000)), "Unknown settings"),
    ("# " + "x" * 2_000_000, "too large for settings (the limit is 1,000,000 bytes)"),
    ('dataset: "a\\0b"\n', "--dataset 'a\\x00b' has a NUL character"),
    ("do_train: false\n", "--do_train False: macs-hf train trains"),
    ("num_train_epochs: 0\n", "--num_train_epochs 0.0 must be a finite number above 0"),
]
# Flags win over settings, so those that settings are to change are left out.
BASE = QUICK.replace("--num_train_epochs 1 ", "").replace(" --report_to none", "")


@pytest.mark.parametrize(("settings", "sentence"), CONFIGURATION, ids=[repr(row[0])[:40] for row in CONFIGURATION])
def test_settings(settings: str | bytes, sentence: str, attack: Attack) -> None:
    data = "" if "dataset" in str(settings) else "--dataset data"
    printed = attack(f"!train settings.yaml {BASE} {data}", sentence, write("settings.yaml", settings))
    assert ALICE not in printed


@pytest.mark.parametrize(
    ("variable", "value", "words", "sentence"),
    [
        ("LOCAL_WORLD_SIZE", "0", "train", "LOCAL_WORLD_SIZE is '0', not a number of processes"),
        ("LOCAL_WORLD_SIZE", "x", "evaluate", "LOCAL_WORLD_SIZE is 'x', not a number of processes"),
        ("RANK", "x", "train", "RANK is 'x', not a number of processes"),
        ("LOCAL_RANK", "gpu0", "train", "LOCAL_RANK is 'gpu0', not a number of processes"),
        ("MACS_HF_TRACEBACK", "0", "train --method x", "--method 'x' is not one of"),
        ("WORLD_SIZE", "x", "evaluate", "WORLD_SIZE is 'x', not a number of processes"),
    ],
)
def test_variables(
    variable: str, value: str, words: str, sentence: str, attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    attack(words, sentence)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("missing.yaml", "No such file or directory: 'missing.yaml'"),
        ("data.yaml", "Is a directory: 'data.yaml'"),
        ("pipe.yaml", "pipe.yaml is a pipe, or too large for settings"),
    ],
)
def test_files_that_cannot_be_read(name: str, sentence: str, attack: Attack, place: Path) -> None:
    os.mkfifo(place / "pipe.yaml")  # nobody writes to it: reading would wait for ever
    attack(f"!train {name}", sentence, write("data.yaml/x", ""))
