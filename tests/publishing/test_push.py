"""Pushing to the loopback Hub: models, pull requests and Spaces; what never is pushed, and what a failure leaves."""

import ast
import compileall
import copy
import json
import re
import shlex
import shutil
import socket
from concurrent.futures import wait
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import tiny
import torch
import yaml
from digits_model import OVERCONFIDENT, save_digits_model
from huggingface_hub import HfApi, constants
from loopback_hub.server import ALICE, ALICE_READS, HubServer, leaks
from safetensors.torch import load, save

import macs_hf
from macs_hf.cli.main import main
from macs_hf.evaluation import write_report
from macs_hf.metrics import group_measures
from macs_hf.publishing.access import check_push_access
from macs_hf.publishing.card import write_card
from macs_hf.publishing.push import (
    GRADIO_VERSION,
    PushError,
    description,
    open_pull_request,
    pull_request_refusal,
    push_checkpoint,
    push_folder,
    push_space,
    space_files,
)
from macs_hf.report import EvaluationReport, Interval, Temperature

from .conftest import MEASURED, ROWS, RUN_FILES


PUSHED = {".gitattributes", "README.md", "card.json", "config.json", "model.safetensors", "preprocessor_config.json"}


# ---- A model ----


def test_one_commit_with_all_that_belongs_to_a_model(hub: HubServer, run: Path) -> None:
    push_folder(run, "alice/pets")
    files = hub.files("alice/pets")
    assert set(files) == PUSHED | RUN_FILES
    assert [commit.title for commit in hub.repo("alice/pets").history()] == [
        "Push a model",
        "initial commit",
    ]
    assert 'model="alice/pets"' in files["README.md"].decode()
    assert files["evaluation.json"] == (run / "evaluation.json").read_bytes()
    assert leaks(hub, "alice/pets") == set()
    push_folder(run, "alice/pets")
    assert len(list(hub.repo("alice/pets").history())) == 2  # nothing changed
    info = HfApi().model_info("alice/pets")
    [result] = [r for r in info.model_index[0]["results"] if r["dataset"]["type"] == "user/pictures"]
    expected = {name: MEASURED.after.metrics[name].value for name in ("accuracy", "ece", "nll")}
    assert {m["type"]: m["value"] for m in result["metrics"]} == pytest.approx(expected, abs=1e-6)


def test_only_files_that_we_or_transformers_wrote(hub: HubServer, run: Path) -> None:
    """Files of the user's own, some of which look like a model's."""
    own = ["aws_config.json", ".docker_config.json", "optimizer.safetensors", "my_preprocessor_config.json", ".env"]
    own += ["model.safetensors.bak", "model-00001-of-00002.safetensors", "samples.parquet.csv", "photo.png", "a.py"]
    own += ["training_args.bin", "optimizer.pt", "trainer_state.json", "notes.md", "evaluation.json~", "mistakes.png"]
    for name in own:
        (run / name).write_bytes(b"{}")
    (run / "generation_config.json").write_text("{}")
    push_folder(run, "alice/pets")
    assert set(hub.files("alice/pets")) == PUSHED | RUN_FILES | {"generation_config.json"}
    checkpoint = run / "checkpoint-8"
    tiny.build("resnet").save_pretrained(checkpoint)
    resumed = {"optimizer.pt", "scheduler.pt", "trainer_state.json", "rng_state_1.pth", "raw_weights.pt"}
    for name in (*resumed, *own):
        (checkpoint / name).write_bytes(b"{}")
    check_push_access("alice/going")
    push_checkpoint(checkpoint, "alice/going", commit_message="8", path_in_repo="last-checkpoint").result(timeout=60)
    kept = {"config.json", "model.safetensors"}
    top = kept | {".gitattributes", "README.md"}
    assert set(hub.files("alice/going")) == top | {f"last-checkpoint/{name}" for name in kept | resumed}


def test_shards_are_those_of_the_index(hub: HubServer, run: Path) -> None:
    (run / "model.safetensors").unlink()
    (run / "evaluation.json").unlink()  # it is about the one file
    (run / "optimizer.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="no saved model"):
        push_folder(run, "alice/pets")
    tiny.build("resnet").save_pretrained(run, max_shard_size="20KB")
    (run / "model-00001-of-00099.safetensors").write_bytes(b"of an earlier model")
    names = set(json.loads((run / "model.safetensors.index.json").read_text())["weight_map"].values())
    assert len(names) > 1
    push_folder(run, "alice/pets")
    assert {name for name in hub.files("alice/pets") if name.endswith(".safetensors")} == names
    (run / min(names)).unlink()
    with pytest.raises(ValueError, match=min(names)):
        push_folder(run, "alice/other")


def rewritten(run: Path, **changes: Any) -> None:
    report = json.loads((run / "evaluation.json").read_text())
    (run / "evaluation.json").write_text(json.dumps(report | changes))


def test_evidence_that_was_changed_is_not_published(hub: HubServer, run: Path) -> None:
    report = json.loads((run / "evaluation.json").read_text())
    assert report["checksums"].keys() == {"samples.parquet", "model.safetensors"}
    better = copy.deepcopy(report["after"])
    better["metrics"]["ece"] = {"value": 0.0, "low": 0.0, "high": 0.01}
    weights, rows = ((run / name).read_bytes() for name in ("model.safetensors", "samples.parquet"))
    noisy = {name: value + 0.01 for name, value in load(weights).items()}
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(run / "samples.parquet"), run / "same.parquet")
    for name, content, message in (
        ("evaluation.json", json.dumps(report | {"after": better}).encode(), "its ece is"),
        ("samples.parquet", (run / "same.parquet").read_bytes(), "was changed after"),
        ("model.safetensors", save(noisy, {"format": "pt"}), "is about other weights"),
    ):
        whole = (run / name).read_bytes()
        (run / name).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            push_folder(run, "alice/pets")
        (run / name).write_bytes(whole)
    (run / "samples.parquet").unlink()  # so that nothing would tell
    rewritten(run, after=better)
    with pytest.raises(FileNotFoundError, match=r"samples\.parquet is missing"):
        push_folder(run, "alice/pets")
    assert hub.requests == []
    rewritten(run, checksums={})  # of an earlier version
    push_folder(run, "alice/pets")
    assert rows not in hub.files("alice/pets").values()


def test_accuracy_that_is_not_above_chance_is_not_published(hub: HubServer, run: Path) -> None:
    report = replace(MEASURED, classes=group_measures(ROWS[1]))
    assert report.above_chance is False
    write_report(report, ROWS, run)
    with pytest.raises(ValueError, match=r"not above chance"):
        push_folder(run, "alice/pets")
    with pytest.raises(SystemExit) as left:
        main(["push", str(run), "alice/pets"])
    assert left.value.code == 2 and hub.requests == []
    assert main(["push", str(run), "alice/pets", "--allow_chance_level"]) == 0
    assert set(hub.files("alice/pets")) == PUSHED | RUN_FILES | {"classes.png"}
    assert "above chance" in pull_request_refusal(report)


def test_what_an_earlier_push_left_does_not_shadow_the_new_model(hub: HubServer, run: Path) -> None:
    api = HfApi()
    api.create_repo("alice/pets")
    old = ["training_args.bin", "model-00001-of-00002.safetensors", "model.safetensors.index.json", "severity.png"]
    kept = ["notes.txt", "vocabulary.json", "photo.reliability.png", "last-checkpoint/optimizer.pt", "x/severity.png"]
    for name in [*old, *kept]:
        api.upload_file(repo_id="alice/pets", path_in_repo=name, path_or_fileobj=b"{}")
    push_folder(run, "alice/pets")
    assert set(hub.files("alice/pets")) == PUSHED | RUN_FILES | set(kept)
    assert EvaluationReport.from_json(hub.files("alice/pets")["evaluation.json"].decode()) == MEASURED


def test_private_branch_and_bare_name(hub: HubServer, run: Path) -> None:
    push_folder(run, "hidden", private=True, revision="trial/1")
    assert hub.repo("alice/hidden").private
    assert set(hub.files("alice/hidden", revision="trial/1")) >= PUSHED
    assert set(hub.files("alice/hidden")) == {".gitattributes"}
    commit = push_folder(run, "alice/later", blocking=False).result()
    assert set(hub.files("alice/later")) >= PUSHED and commit.commit_url


def test_a_report_of_an_earlier_model_is_not_pushed(hub: HubServer, run: Path) -> None:
    push_folder(run, "alice/pets")
    write_card(run, "alice/pets")
    push_folder(run, "alice/pets", with_report=False)
    assert set(hub.files("alice/pets")) == PUSHED
    assert "No evaluation report came" in hub.files("alice/pets")["README.md"].decode()


def test_a_card_of_another_repository_is_rendered_again_and_one_by_hand_left_alone(hub: HubServer, run: Path) -> None:
    write_card(run, "pets", MEASURED, license="mit")  # before it was known where it goes
    push_folder(run, "alice/pets")
    readme = hub.files("alice/pets")["README.md"].decode()
    assert 'model="alice/pets"' in readme and "license: mit" in readme
    for own in (readme + "\nMy own words.\n", "---\nlicense: mit\n---\nMy own words.\n"):
        (run / "README.md").write_text(own)
        push_folder(run, "alice/pets")
        assert hub.files("alice/pets")["README.md"].decode() == own


@pytest.mark.slow
def test_calibrate_command_pushes(hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_digits_model(tmp_path / "model")
    HfApi().create_repo("alice/uncalibrated")
    HfApi().upload_folder(repo_id="alice/uncalibrated", folder_path=tmp_path / "model")
    options = f"--dataset digits --push_to_hub calibrated --private --cpu --output_dir {tmp_path / 'out'}"
    assert main(["calibrate", "alice/uncalibrated", *options.split()]) == 0, capsys.readouterr().err
    assert "Pushed: " in capsys.readouterr().out
    files = hub.files("alice/calibrated")
    assert hub.repo("alice/calibrated").private
    readme = files["README.md"].decode()
    assert "base_model: alice/uncalibrated" in readme and "measured on `digits` by `macs_hf`" in readme
    temperature = json.loads(files["evaluation.json"])["temperature"]["value"]
    assert json.loads(files["config.json"])["calibration_temperature"] == pytest.approx(temperature)
    assert not any(name.endswith(".bin") for name in files)


@pytest.mark.parametrize(
    ("route", "fault", "reason"),
    [
        ("commit", {"status": 503}, "HTTP 503"),
        ("commit", {"cut": "answer"}, "the connection was cut"),
        ("upload", {"status": 507}, "HTTP 507"),
        ("whoami", {"status": 401}, "token"),
    ],
)
def test_a_failed_push_loses_nothing(
    hub: HubServer, run: Path, route: str, fault: dict[str, Any], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    hub.inject(route, **fault)
    with pytest.raises(PushError, match=reason) as caught:
        push_folder(run, "alice/pets")
    message = str(caught.value)
    assert ALICE not in message and str(run) in message
    assert all(path.read_bytes() == content for path, content in before.items())
    command = re.search(r"^  macs-hf (push .+)$", message, re.MULTILINE)[1]
    assert main(shlex.split(command)) == 0
    assert "pushed: http" in capsys.readouterr().out
    assert set(hub.files("alice/pets")) == PUSHED | RUN_FILES
    assert len(list(hub.repo("alice/pets").history())) == 2


def test_offline_nothing_is_advised_that_cannot_work(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConnectionError, match="HF_HUB_OFFLINE=1") as caught:
        push_folder(run, "alice/pets")
    assert not isinstance(caught.value, PushError) and "macs-hf push" not in str(caught.value)


def test_a_checkpoint_that_is_deleted_while_it_is_pushed(hub: HubServer, run: Path) -> None:
    checkpoint = run / "checkpoint-8"
    tiny.build("resnet").save_pretrained(checkpoint)
    for name in ("optimizer.pt", "training_args.bin"):
        (checkpoint / name).write_bytes(ALICE.encode() if name == "training_args.bin" else b"state")
    (checkpoint / "trainer_state.json").write_text("{}")
    weights = (checkpoint / "model.safetensors").read_bytes()
    check_push_access("alice/going")
    future = push_checkpoint(checkpoint, "alice/going", commit_message="step 8", path_in_repo="last-checkpoint")
    shutil.rmtree(checkpoint)
    future.result(timeout=60)
    files = hub.files("alice/going")
    assert files["model.safetensors"] == files["last-checkpoint/model.safetensors"] == weights
    assert {"last-checkpoint/optimizer.pt", "last-checkpoint/trainer_state.json"} <= set(files)
    assert "optimizer.pt" not in files and not any(name.endswith("training_args.bin") for name in files)
    assert "No evaluation report came with this checkpoint" in files["README.md"].decode()
    assert leaks(hub, "alice/going") == set()
    assert not list(run.glob("_push-*"))


def test_checkpoints_are_pushed_one_after_the_other(hub: HubServer, run: Path) -> None:
    check_push_access("alice/going")
    tiny.build("resnet").save_pretrained(run / "checkpoint-4")
    hub.inject("commit", status=403)
    pushes = [push_checkpoint(run / "checkpoint-4", "alice/going", commit_message=f"push {n}") for n in range(2)]
    assert pushes[0].exception(timeout=60) is not None  # which does not stop the other
    wait(pushes, timeout=60)
    assert next(iter(hub.repo("alice/going").history())).title == "push 1"


# ---- Who may push ----


def test_access_makes_repository_and_branch(hub: HubServer) -> None:
    assert check_push_access("pets", private=True, revision="trial/1") == "alice/pets"
    assert hub.repo("alice/pets").private and "trial/1" in hub.repo("alice/pets").branches
    assert check_push_access("lab/pets") == "lab/pets"
    assert check_push_access("lab/pets", revision="main") == "lab/pets"
    with pytest.raises(ValueError, match="private"):
        check_push_access("lab/pets", private=True)


def test_pushing_offline_or_to_nobody(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ConnectionError, match="alice/pets"):
            check_push_access("alice/pets")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConnectionError, match="HF_HUB_OFFLINE=1"):
        check_push_access("alice/pets")
    with pytest.raises(ValueError, match="alice//pets"):
        check_push_access("alice//pets")


# ---- A pull request ----


@pytest.fixture
def overconfident(hub: HubServer, tmp_path: Path) -> Path:
    """Somebody else's model, whose weights also lie in two shards and a pickle, as they once were."""
    folder = tmp_path / "overconfident"
    save_digits_model(folder)
    repo = hub.store.create("model", "bob/digits")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    files |= {"README.md": b"Bob's model.\n", "model-00001-of-00002.safetensors": b"old", "pytorch_model.bin": b"old"}
    added = {name: hub.store.add_bytes(repo, content) for name, content in files.items()}
    hub.store.commit(repo, "main", title="a model", add=added)
    return folder


def calibrate(folder: Path, model: str, *options: str) -> int:
    options = ("--dataset", "digits", "--cpu", "--output_dir", str(folder), "--create_pr", *options)
    return main(["calibrate", model, *options])


def test_a_pull_request_holds_the_head_and_the_report(
    hub: HubServer, overconfident: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    before = hub.files("bob/digits")
    assert calibrate(tmp_path / "out", str(overconfident), "--push_to_hub", "bob/digits") == 0
    assert f"Pull request: {hub.endpoint}/bob/digits/discussions/1" in capsys.readouterr().out

    (request,) = hub.repo("bob/digits").pull_requests
    report = EvaluationReport.load(tmp_path / "out" / "evaluation.json")
    assert report.temperature.value == pytest.approx(OVERCONFIDENT, rel=1e-4)
    assert request["author"] == "alice" and request["target"] == "main"
    assert f"{report.temperature.value:.4f}" in request["title"]
    text = request["description"]
    assert text == description(report, ["pytorch_model.bin"])
    assert "--push_to_hub bob/digits" in text and "`pytorch_model.bin`" in text
    for part in (report.before, report.after):
        assert f"{part.metrics['nll'].value:.3f} [" in text

    assert hub.files("bob/digits") == before  # nothing happened to the repository itself
    after = hub.files("bob/digits", revision="refs/pr/1")
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert changed == {"model.safetensors", "config.json", "model-00001-of-00002.safetensors"}
    assert "model-00001-of-00002.safetensors" not in after
    old, new = (json.loads(files["config.json"]) for files in (before, after))
    assert new["calibration_temperature"] == pytest.approx(report.temperature.value)
    kept = {"calibration_temperature", "guarantee_reason", "prediction_set_thresholds", "abstention_thresholds"}
    assert new.keys() - old.keys() == kept and old.items() <= new.items()
    weights, calibrated = (load(files["model.safetensors"]) for files in (before, after))
    assert weights.keys() == calibrated.keys()
    for name, value in weights.items():
        expected = value / report.temperature.value if name.startswith("classifier") else value
        torch.testing.assert_close(calibrated[name], expected)

    hub.inject("commit", status=403)
    with pytest.raises(PushError, match="pull request to 'bob/digits' failed"):
        open_pull_request(tmp_path / "out", "bob/digits", report)
    assert (tmp_path / "out" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    "temperature",
    [
        Temperature(1.0, "50 held-out samples are too few"),
        Temperature(1.1, standard_error=0.06),
        Temperature(1.5, standard_error=0.01, nll_gain=Interval(0.01, -0.01, 0.03)),
    ],
)
def test_a_temperature_that_may_be_chance_is_not_offered(temperature: Temperature) -> None:
    assert pull_request_refusal(MEASURED) is None
    assert pull_request_refusal(replace(MEASURED, temperature=temperature))


@pytest.mark.parametrize(
    ("token", "model", "options", "named"),
    [
        (ALICE_READS, "bob/digits", (), "token"),
        (None, "bob/nothing", (), "bob/nothing"),
        (None, str(Path(__file__).parent), (), "local"),
        (None, "bob/digits", ("--model_revision", "old"), "--model_revision"),
        (None, "bob/digits", ("--private",), "--private"),
    ],
)
def test_what_cannot_be_proposed_is_said_before_the_work(
    hub: HubServer,
    token: str | None,
    model: str,
    options: tuple[str, ...],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    hub.store.create("model", "bob/digits")
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(SystemExit) as caught:
        calibrate(tmp_path / "out", model, *options)
    assert caught.value.code == 2 and named in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# ---- A Space ----


def test_push_with_a_space(run: Path, hub: HubServer, capsys: pytest.CaptureFixture) -> None:
    assert main(["push", str(run), "alice/insects", "--space"]) == 0
    assert "model.safetensors" in hub.files("alice/insects")
    files = hub.files("alice/insects", "space")
    said = capsys.readouterr().out
    assert f"{hub.endpoint}/alice/insects" in said and f"{hub.endpoint}/spaces/alice/insects" in said
    assert hub.repo("alice/insects", "space").sdk == "gradio"
    _, front, _ = files["README.md"].decode().split("---\n", 2)
    card = yaml.safe_load(front)
    assert (card["sdk"], card["sdk_version"], card["app_file"]) == ("gradio", GRADIO_VERSION, "app.py")
    assert card["models"] == ["alice/insects"] and len(card["short_description"]) <= 60
    assert "license" not in card  # nobody said under which it is
    call = ast.parse(files["app.py"]).body[-1].exc.args[0].args[0]
    assert ast.literal_eval(call) == ["app", "alice/insects", "--host", "0.0.0.0", "--port", "7860"]
    assert not leaks(hub, "alice/insects")


def test_it_holds_the_whole_package_and_what_it_needs(tmp_path: Path) -> None:
    package = Path(macs_hf.__file__).parent
    for name, content in space_files("user/name", None).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    sources = {path.relative_to(package) for path in package.rglob("*") if path.suffix in (".py", ".css", ".md")}
    assert sources == {
        path.relative_to(tmp_path / "macs_hf")
        for path in (tmp_path / "macs_hf").rglob("*")
        if path.suffix in (".py", ".css", ".md")
    }
    assert compileall.compile_dir(tmp_path, quiet=1)
    (found,) = metadata.distributions(name="macs-hf", path=[str(tmp_path)])
    assert found.version == macs_hf.__version__
    listed = (tmp_path / "requirements.txt").read_text().splitlines()
    assert any(line.startswith("torch>") for line in listed) and not any("extra" in line for line in listed)


def test_pushing_again_brings_it_up_to_date_and_leaves_others_alone(run: Path, hub: HubServer) -> None:
    api = HfApi()
    api.create_repo("alice/insects")
    push_space("alice/insects", run)
    for name in ("macs_hf/old.py", "notes.md"):
        api.upload_file(path_or_fileobj=b"x", path_in_repo=name, repo_id="alice/insects", repo_type="space")
    push_space("alice/insects", run)
    files = hub.files("alice/insects", "space")
    assert "macs_hf/old.py" not in files and "notes.md" in files
    api.upload_file(path_or_fileobj=b"mine", path_in_repo="app.py", repo_id="alice/insects", repo_type="space")
    with pytest.raises(ValueError, match="serves something else"):
        push_space("alice/insects", run)
    assert hub.files("alice/insects", "space")["app.py"] == b"mine"


def test_a_private_model_has_a_private_space(run: Path, hub: HubServer, capsys: pytest.CaptureFixture) -> None:
    assert main(["push", str(run), "alice/hidden", "--space", "--private"]) == 0
    assert hub.repo("alice/hidden").private and hub.repo("alice/hidden", "space").private
    assert "HF_TOKEN" in capsys.readouterr().out
    # Also where the model is known to be private, and nobody says it again.
    HfApi().create_repo("alice/secret", private=True)
    assert main(["push", str(run), "alice/secret", "--space"]) == 0
    assert hub.repo("alice/secret", "space").private


def test_a_hub_that_fails_is_a_sentence(run: Path, hub: HubServer) -> None:
    hub.inject("commit", status=403)
    with pytest.raises(ConnectionError, match="The model is pushed, but the Space"):
        push_space("alice/insects", run)
