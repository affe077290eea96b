"""Attacks by datasets, models, checkpoints and reports: damaged, empty, hostile, or not what they say."""

import pytest
from attacks import changes
from attacks.changes import (
    HOSTILE_CODE,
    Change,
    both,
    each_split,
    edit,
    hostile_pickle,
    labels,
    link,
    of_test,
    only,
    picture,
    remove,
    rename,
    saved,
    truncate,
    weights,
    write,
)
from attacks.conftest import Attack
from datasets import DatasetDict
from PIL import Image

from macs_hf.training.checkpoints import RECORD_FILE


def run(attack: Attack, words: str, table: dict[str, tuple[str, Change]], name: str) -> None:
    named, change = table[name]
    attack(words, named, change)


# ---- Datasets ----

GREEN = Image.new("RGB", (64, 64), (9, 90, 9))

PHOTOS: dict[str, tuple[str, Change]] = {
    "truncated JPEG": ("test/ant/9.jpg", picture("photos/test/ant/9.jpg", GREEN, 0.5)),
    "a decompression bomb": ("test/ant/9.png", write("photos/test/ant/9.png", changes.bomb())),
    "an image that is a pipe": ("pipe.png", changes.pipes),
    "a row without an image": ("Image 0", each_split(changes.without_first_image)),
    "an empty folder": ("photos", changes.emptied("photos")),
    "damaged Parquet": ("photos", only("train.parquet", "PAR1xxxx")),
    "a loading script": ("", write("photos/photos.py", HOSTILE_CODE)),
    "labels beyond the classes": ("Label 5 of row 0", saved(changes.label_outside)),
    "missing labels": ("label", labels([None, 1])),
    "several labels per image": ("--label_column", labels([[0, 1], [1]])),
    "an empty split": ("empty", of_test(lambda split: split.select([]))),
    "one image": ("train set", saved(lambda splits: DatasetDict(train=splits["train"].select([0])))),
    "two columns of labels": ("label_column", each_split(changes.two_labels)),
    "no split to train on": ("--train_split", rename("photos/train", "photos/validation")),
}


@pytest.mark.parametrize("name", PHOTOS)
def test_photos(name: str, attack: Attack) -> None:
    run(attack, "photos", PHOTOS, name)


SAVED: dict[str, tuple[str, Change]] = {
    "a damaged list of splits": ("'data'", write("data/dataset_dict.json", "{")),
    "an unknown feature": (
        "",
        write("data/train/dataset_info.json", '{"features": {"image": {"_type": "os.system"}}}'),
    ),
}


@pytest.mark.parametrize("name", SAVED)
def test_saved_datasets(name: str, attack: Attack) -> None:
    run(attack, "train", SAVED, name)


# ---- Models ----

CONFIG, PROCESSOR, WEIGHTS = "model/config.json", "model/preprocessor_config.json", "model/model.safetensors"
QUANTISED = {"quant_method": "bitsandbytes", "load_in_8bit": True}
EVIL = {"AutoConfig": "evil.C", "AutoModelForImageClassification": "evil.M"}
CODE = write("model/evil.py", HOSTILE_CODE)

MODEL: dict[str, tuple[str, Change]] = {
    # The config
    "another number of classes": ("model", edit(CONFIG, num_labels=7, id2label=..., label2id=...)),
    **{
        f"config, {field} {value!r}"[:60]: (named, edit(CONFIG, **{field: value}))
        for field, value, named in (
            ("model_type", "nope", "nope"),
            ("hidden_sizes", "many", "'model'"),
            ("problem_type", "multi_label_classification", "problem_type"),
            ("quantization_config", QUANTISED, "bitsandbytes"),
            ("calibration_temperature", "hot", "temperature"),
        )
    },
    **{
        f"config of {content[:10]!r}": ("model", write(CONFIG, content))
        for content in (b"[]", b"\xff\xfe\x00", b"[" * 100_000)
    },
    "no config": ("config.json", remove(CONFIG)),
    "half a config": ("'model'", truncate(CONFIG)),
    # The processor
    "no processor": ("", remove(PROCESSOR)),
    "a size of nothing": ("preprocessor_config.json", edit(PROCESSOR, size={"height": -1, "width": 0})),
    # The weights
    "half the weights": ("model", truncate(WEIGHTS)),
    "weights that are a page": ("model", write(WEIGHTS, b"<html>404</html>")),
    "a pickle": (
        "model.safetensors",
        both(remove(WEIGHTS), write("model/pytorch_model.bin", hostile_pickle())),
    ),
    "no head": ("model", weights(lambda found: {k: v for k, v in found.items() if "classifier" not in k})),
    "weights of NaN": (
        "NaN",
        weights(lambda found: {k: v * float("nan") if v.is_floating_point() else v for k, v in found.items()}),
    ),
    # Code that comes with it
    "code for the model": ("code", both(CODE, edit(CONFIG, model_type="evil", auto_map=EVIL))),
    "code for the processor": (
        "code",
        both(CODE, edit(PROCESSOR, image_processor_type="Evil", auto_map={"AutoImageProcessor": "evil.P"})),
    ),
}


@pytest.mark.parametrize("name", MODEL)
def test_models(name: str, attack: Attack) -> None:
    run(attack, "evaluate", MODEL, name)


def test_a_model_to_train(attack: Attack) -> None:
    run(attack, "train --model model", MODEL, "code for the model")


# ---- Checkpoints ----

LAST = "run/checkpoint-2"
STATE = f"{LAST}/trainer_state.json"

CHECKPOINT: dict[str, tuple[str, Change]] = {
    **{f"half of {name}": (name, truncate(f"{LAST}/{name}")) for name in ("optimizer.pt", "rng_state.pth")},
    "no scheduler": ("scheduler.pt", remove(f"{LAST}/scheduler.pt")),
    "half a model": ("model.safetensors", truncate(f"{LAST}/model.safetensors")),
    "a hostile optimiser": ("optimizer.pt", write(f"{LAST}/optimizer.pt", hostile_pickle())),
    "no record": ("", remove(f"{LAST}/{RECORD_FILE}")),
    "a changed config": ("config.json", edit(f"{LAST}/config.json", num_channels=4)),
}


@pytest.mark.parametrize("name", CHECKPOINT)
def test_checkpoints(name: str, attack: Attack) -> None:
    run(attack, "train --output_dir run", CHECKPOINT, name)


@pytest.mark.parametrize(
    ("options", "named", "change"),
    [
        (LAST, LAST, write(STATE, "{}")),
        (LAST, "optimizer.pt", truncate(f"{LAST}/optimizer.pt")),
        (f"{LAST} --method ce", "lambda_consistency", None),
        (f"{LAST} --dataset photos", "dataset", None),
        ("run/README.md", "resume_from_checkpoint", None),
        ("true", "'out'", None),
    ],
)
def test_named_checkpoints(options: str, named: str, change: Change | None, attack: Attack) -> None:
    attack(f"train --resume_from_checkpoint {options}", named, change)


# ---- Reports, and folders to push ----

REPORT, ROWS = "other/evaluation.json", "other/samples.parquet"

COMPARED: dict[str, tuple[str, Change]] = {
    "a report of brackets": (REPORT, write(REPORT, "[" * 100_000)),
    "a wrong number": ("n", edit(REPORT, n=-4)),
    "a report of another split": ("split", edit(REPORT, split="validation")),
    "a report that writes on the terminal": ("\\x1b[2J", edit(REPORT, **{"\x1b[2J": 1})),
    "half the rows": ("samples.parquet", truncate(ROWS)),
    "no rows": ("samples.parquet", remove(ROWS)),
}


@pytest.mark.parametrize("name", COMPARED)
def test_reports(name: str, attack: Attack) -> None:
    run(attack, "!compare run other", COMPARED, name)


PUSHED: dict[str, tuple[str, Change]] = {
    "deep settings of a card": ("card.json", write("run/card.json", "[" * 100_000)),
    "weights outside": ("model.safetensors", link("run/model.safetensors", "../model/model.safetensors")),
    "a config outside": ("config.json", link("run/config.json", "/etc/passwd")),
}


@pytest.mark.parametrize("name", PUSHED)
def test_folders_to_push(name: str, attack: Attack) -> None:
    run(attack, "!push run alice/x", PUSHED, name)
