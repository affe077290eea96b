"""Attacks by models, checkpoints and reports: damaged, hostile, or of something else."""

from pathlib import Path

import pytest
from attacks.changes import (
    EXECUTED,
    HOSTILE_CODE,
    Change,
    both,
    edit,
    hostile_pickle,
    link,
    remove,
    truncate,
    weights,
    write,
)
from attacks.conftest import Attack

from macs_hf.training.checkpoint_record import RECORD_FILE


CONFIG, PROCESSOR, WEIGHTS = "model/config.json", "model/preprocessor_config.json", "model/model.safetensors"
OTHER_SHAPES = "holds weights of other shapes than its config asks for"
UNLOADED = "Model 'model' cannot be loaded"
DAMAGED = "the file is damaged or incomplete"
REMOTE = "needs code from its own repository, which is never run"
REPORT, ROWS = "other/evaluation.json", "other/samples.parquet"
LAST = "run/checkpoint-2"
GO_ON = "train --output_dir run"
FROM = f"train --resume_from_checkpoint {LAST}"
NO_REPORT = "other/evaluation.json is not a report that can be used"


def remote_code(name: str, **values: object) -> Change:
    return both(write("model/evil.py", HOSTILE_CODE), edit(name, **values))


def nothing(folder: Path) -> None:
    """The files are as they should be."""


def processor(**values: object) -> Change:
    return edit(PROCESSOR, **values)


CHECKPOINT = [
    # The config of a model
    ("another number of classes", "evaluate", OTHER_SHAPES, edit(CONFIG, num_labels=7, id2label=..., label2id=...)),
    ("an unknown architecture", "evaluate", "has model type `nope`", edit(CONFIG, model_type="nope")),
    ("a type that torch does not have", "evaluate", "no attribute 'float7'", edit(CONFIG, dtype="float7")),
    ("a temperature in text", "calibrate", "is not a temperature", edit(CONFIG, calibration_temperature="hot")),
    ("a temperature of -2", "evaluate", "is not a temperature", edit(CONFIG, calibration_temperature=-2)),
    ("a config with a mark before it", "evaluate", "not a valid JSON file", write(CONFIG, b"\xef\xbb\xbf{}")),
    ("no architecture", "evaluate", "Should have a `model_type` key", edit(CONFIG, model_type=...)),
    ("a language model", "evaluate", "Unrecognized configuration class", edit(CONFIG, model_type="bert")),
    ("text in place of numbers", "evaluate", UNLOADED, edit(CONFIG, hidden_sizes="many")),
    ("no layers", "evaluate", "out_features must be a subset", edit(CONFIG, depths=[])),
    ("layers of null", "evaluate", UNLOADED, edit(CONFIG, depths=None)),
    ("a negative size", "evaluate", "negative dimension -1", edit(CONFIG, embedding_size=-1)),
    ("one channel", "evaluate", OTHER_SHAPES, edit(CONFIG, num_channels=1)),
    (
        "several labels per image",
        "evaluate",
        "has no single label per image",
        edit(CONFIG, problem_type="multi_label_classification"),
    ),
    ("an unknown dtype", "evaluate", UNLOADED, edit(CONFIG, dtype="nope")),
    (
        "a quantised model",
        "evaluate",
        "bitsandbytes",
        edit(CONFIG, quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True}),
    ),
    (
        "a temperature of text",
        "calibrate",
        "'hot' in the model's config is not a temperature",
        edit(CONFIG, calibration_temperature="hot"),
    ),
    (
        "a temperature of -1",
        "calibrate",
        "-1 in the model's config is not a temperature",
        edit(CONFIG, calibration_temperature=-1),
    ),
    (
        "a temperature of null",
        "evaluate",
        "None in the model's config is not a temperature",
        edit(CONFIG, calibration_temperature=None),
    ),
    ("half a config", "evaluate", UNLOADED, truncate(CONFIG)),
    ("an empty config", "evaluate", UNLOADED, write(CONFIG, "")),
    ("a config that is a list", "evaluate", "Should have a `model_type` key", write(CONFIG, "[]")),
    ("a config of null", "evaluate", UNLOADED, write(CONFIG, "null")),
    ("a config of bytes", "evaluate", UNLOADED, write(CONFIG, b"\xff\xfe\x00")),
    ("a deep config", "evaluate", UNLOADED, write(CONFIG, "[" * 100_000)),
    ("no config", "evaluate", "it has no config.json", remove(CONFIG)),
    # Its processor
    ("half a processor", "evaluate", "is not a valid JSON file", truncate(PROCESSOR)),
    ("a processor that is a list", "evaluate", UNLOADED, write(PROCESSOR, "[]")),
    (
        "an unknown processor",
        "evaluate",
        "Unrecognized image processor",
        write(PROCESSOR, '{"image_processor_type": "Nope"}'),
    ),
    ("no processor", "evaluate", "Can't load image processor", remove(PROCESSOR)),
    ("a size of nothing", "evaluate", "fails on a plain RGB image", processor(size={"height": -1, "width": 0})),
    ("two means", "evaluate", "fails on a plain RGB image", processor(image_mean=[0.5, 0.5])),
    ("a deviation of 0", "evaluate", "its output channels are not those of the image", processor(image_std=[0, 0, 0])),
    # Its weights
    ("half the weights", "evaluate", DAMAGED, truncate(WEIGHTS)),
    ("empty weights", "evaluate", DAMAGED, write(WEIGHTS, "")),
    ("weights of noise", "evaluate", DAMAGED, write(WEIGHTS, b"\xff" * 64)),
    ("weights that are a page", "evaluate", DAMAGED, write(WEIGHTS, "<html>404</html>")),
    ("no weights", "evaluate", "has no model.safetensors", remove(WEIGHTS)),
    (
        "weights in a pickle",
        "evaluate",
        "has no model.safetensors. Weights in other files",
        both(remove(WEIGHTS), write("model/pytorch_model.bin", hostile_pickle())),
    ),
    (
        "no head",
        "evaluate",
        "it is not a trained classifier",
        weights(lambda t: {k: v for k, v in t.items() if "classifier" not in k}),
    ),
    (
        "weights of NaN",
        "evaluate",
        "its logits hold NaN or infinity",
        weights(lambda t: {k: v * float("nan") if v.is_floating_point() else v for k, v in t.items()}),
    ),
    ("half the weights, trained", "train --model model", DAMAGED, truncate(WEIGHTS)),
    ("half a config, trained", "train --model model", UNLOADED, truncate(CONFIG)),
    # Code that comes with it
    (
        "code for the model",
        "evaluate",
        REMOTE,
        remote_code(
            CONFIG, model_type="evil", auto_map={"AutoConfig": "evil.C", "AutoModelForImageClassification": "evil.M"}
        ),
    ),
    (
        "code for the model, trained",
        "train --model model",
        REMOTE,
        remote_code(CONFIG, model_type="evil", auto_map={"AutoConfig": "evil.C"}),
    ),
    (
        "code for the processor",
        "evaluate",
        REMOTE,
        remote_code(PROCESSOR, image_processor_type="Evil", auto_map={"AutoImageProcessor": "evil.P"}),
    ),
    # Checkpoints to continue from
    ("half an optimiser", GO_ON, "optimizer.pt is damaged", truncate(f"{LAST}/optimizer.pt")),
    ("an empty scheduler", GO_ON, "scheduler.pt is damaged", write(f"{LAST}/scheduler.pt", "")),
    ("a hostile optimiser", GO_ON, "optimizer.pt is damaged", write(f"{LAST}/optimizer.pt", hostile_pickle())),
    ("half the generators", GO_ON, "rng_state.pth is damaged", truncate(f"{LAST}/rng_state.pth")),
    ("half a saved model", GO_ON, "model.safetensors is damaged", truncate(f"{LAST}/model.safetensors")),
    ("no optimiser", GO_ON, "optimizer.pt is missing", remove(f"{LAST}/optimizer.pt")),
    ("no scheduler", GO_ON, "scheduler.pt is missing", remove(f"{LAST}/scheduler.pt")),
    ("no generators", GO_ON, "rng_state.pth is missing", remove(f"{LAST}/rng_state.pth")),
    ("no record", GO_ON, "for an unknown run", remove(f"{LAST}/{RECORD_FILE}")),
    ("a record of nothing", GO_ON, f"{RECORD_FILE} is damaged", write(f"{LAST}/{RECORD_FILE}", "{}")),
    ("a changed config", GO_ON, "config.json", edit(f"{LAST}/config.json", num_channels=4)),
    (
        "another step",
        GO_ON,
        "is of step 9, and the folder of step 2",
        edit(f"{LAST}/trainer_state.json", global_step=9),
    ),
    ("a step below 0", GO_ON, "is of step -1, and the", edit(f"{LAST}/trainer_state.json", global_step=-1)),
    ("a deep record", GO_ON, f"{RECORD_FILE} is damaged", write(f"{LAST}/{RECORD_FILE}", "[" * 100_000)),
    ("named, cut off", FROM, "it was cut off while it was saved", write(f"{LAST}/trainer_state.json", "{}")),
    ("named, half an optimiser", FROM, "optimizer.pt is damaged", truncate(f"{LAST}/optimizer.pt")),
    ("named, of another method", f"{FROM} --method ce", "it is of another run (method: 'macs', now 'ce'", nothing),
    ("named, of another seed", f"{FROM} --seed 3", "it is of another run (seed: 0, now 3)", nothing),
    ("named, of other data", f"{FROM} --dataset photos", "it is of another run (dataset: 'data', now", nothing),
    ("named, a model", "train --resume_from_checkpoint model", "it was cut off while it was saved", nothing),
    ("named, a file", "train --resume_from_checkpoint run/README.md", "it is neither a folder nor a Hub id", nothing),
    ("named, nowhere", "train --resume_from_checkpoint a/b/c", "Can't find a valid checkpoint", nothing),
    ("the newest of none", "train --resume_from_checkpoint true", "found in output directory 'out'", nothing),
    # Reports and rows
    ("half a report", "!compare run other", NO_REPORT, truncate(REPORT)),
    ("an empty report", "!compare run other", NO_REPORT, write(REPORT, "")),
    ("a report that is a list", "!compare run other", "schema_version is None", write(REPORT, "[]")),
    ("a deep report", "!compare run other", "nested too deeply", write(REPORT, "[" * 100_000)),
    ("a report of bytes", "!compare run other", NO_REPORT, write(REPORT, b"\xff\xfe")),
    ("a report of another version", "!compare run other", "schema_version is 99", edit(REPORT, schema_version=99)),
    ("an unknown field", "!compare run other", "nope is not a field of EvaluationReport", edit(REPORT, nope=1)),
    ("a missing field", "!compare run other", "dataset is missing", edit(REPORT, dataset=...)),
    (
        "an accuracy of 7",
        "!compare run other",
        "before.metrics.accuracy",
        edit(REPORT, before__metrics__accuracy={"value": 7, "low": 7, "high": 7}),
    ),
    ("a negative n", "!compare run other", "n must be a whole number of at least 1, got -4", edit(REPORT, n=-4)),
    (
        "an ECE of NaN",
        "!compare run other",
        "before.metrics.ece.value must be a finite number",
        edit(REPORT, before__metrics__ece__value=float("nan")),
    ),
    ("bins that do not add up", "!compare run other", "must add up to n = 9", edit(REPORT, n=9)),
    ("text for a number", "!compare run other", "n must be a whole number", edit(REPORT, n="8")),
    ("another dataset", "!compare run other", "was measured on dataset 'data'", edit(REPORT, dataset="others")),
    ("another split", "!compare run other", "was measured on split 'test'", edit(REPORT, split="validation")),
    (
        "a report that writes on the terminal",
        "!compare run other",
        "\\x1b[2J is not a field of EvaluationReport",
        edit(REPORT, **{"\x1b[2J": 1}),
    ),
    ("half the rows", "!compare run other", "is damaged, or not a Parquet file", truncate(ROWS)),
    ("empty rows", "!compare run other", "is damaged, or not a Parquet file", write(ROWS, "")),
    ("no rows", "!compare run other", "is missing: it holds one row per sample", remove(ROWS)),
    ("no report", "!compare run other", "There is no report in 'other'", remove(REPORT)),
    # Reports to verify
    (
        "a part of an image",
        "!verify run --dataset data --cpu",
        "has max_eval_samples: 2.5, which is no number of images",
        edit("run/evaluation.json", training_arguments={"max_eval_samples": 2.5}),
    ),
    # Folders to push
    (
        "deep settings of a card",
        "!push run alice/x",
        "card.json cannot be used",
        write("run/card.json", "[" * 100_000),
    ),
    (
        "weights that are a link outside",
        "!push run alice/x",
        "model.safetensors in 'run' is a link to a file outside",
        link("run/model.safetensors", "../model/model.safetensors"),
    ),
    (
        "a card that is a link outside",
        "!push run alice/x",
        "README.md in 'run' is a link to a file outside",
        link("run/README.md", "/etc/hostname"),
    ),
    (
        "a config that is a link outside",
        "!push run alice/x",
        "secret_config.json in 'run' is a link",
        link("run/secret_config.json", "/etc/passwd"),
    ),
    ("no model", "!push run alice/x", "There is no saved model", remove("run/model.safetensors")),
]


@pytest.mark.parametrize(
    ("words", "sentence", "change"), [row[1:] for row in CHECKPOINT], ids=[row[0] for row in CHECKPOINT]
)
def test_checkpoints(words: str, sentence: str, change: Change, attack: Attack, place: Path) -> None:
    attack(words, sentence, change)
    assert not list(place.rglob(EXECUTED))
