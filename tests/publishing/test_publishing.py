"""Pushing to a Hub, in one process with the loopback Hub: what is pushed, what never is, and what failures say."""

import json
import re
import shlex
import shutil
import socket
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from huggingface_hub import HfApi, constants
from loopback_hub.server import ALICE, ALICE_READS, BOB, HubServer, leaks
from transformers import ViTImageProcessor

from macs_hf.cli.main import main
from macs_hf.evaluation.checkpoint import write_report
from macs_hf.hub.connection import require_repo
from macs_hf.hub.failure_reasons import reason_of
from macs_hf.metrics import measure
from macs_hf.models.loading import load_classifier
from macs_hf.models.timm_layout import save_in_timm_layout
from macs_hf.publishing.access import check_push_access
from macs_hf.publishing.card import model_card
from macs_hf.publishing.card_settings import CardSettings
from macs_hf.publishing.folder import files_to_push, saved_report, write_card
from macs_hf.publishing.push import PushError, push_checkpoint, push_folder
from macs_hf.report.evaluation import EvaluationReport
from macs_hf.report.guarantees import Guarantees, PredictionSetGuarantee, Share
from macs_hf.report.rows import SampleRows

from .reports import REPORT


ROWS = SampleRows.from_logits(torch.randn(50, 4, generator=torch.Generator().manual_seed(0)), torch.arange(50) % 4)
MEASURED = replace(REPORT, corruptions=None, guarantees=None, risk_coverage=None)
MEASURED = replace(MEASURED, n=50, before=measure(ROWS), after=measure(ROWS))


@pytest.fixture(scope="module")
def saved_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run, with what a trainer leaves behind, secrets included."""
    folder = tmp_path_factory.mktemp("saved") / "v1.5"
    model = tiny.build("resnet")
    model.config.calibration_temperature = 1.5
    model.save_pretrained(folder)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    write_report(MEASURED, [ROWS, ROWS], folder)
    (folder / "training_args.bin").write_bytes(ALICE.encode())
    (folder / "run.json").write_text("{}")
    (folder / "checkpoint-4").mkdir()
    (folder / "checkpoint-4" / "model.safetensors").write_bytes(b"unfolded")
    return folder


@pytest.fixture
def run(saved_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved_run, tmp_path / "my runs" / "v1.5")


PUSHED = {".gitattributes", "README.md", "card.json", "config.json", "model.safetensors", "preprocessor_config.json"}
RUN_FILES = {"evaluation.json", "samples.parquet", "report.html", "reliability.png"}


# ---- What is pushed ----


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


def test_what_an_earlier_push_left_does_not_shadow_the_new_model(hub: HubServer, run: Path) -> None:
    api = HfApi()
    api.create_repo("alice/pets")
    old = ["training_args.bin", "model-00001-of-00002.safetensors", "model.safetensors.index.json", "notes.txt"]
    for name in [*old, "last-checkpoint/optimizer.pt"]:
        api.upload_file(repo_id="alice/pets", path_in_repo=name, path_or_fileobj=b"{}")
    push_folder(run, "alice/pets")
    assert set(hub.files("alice/pets")) == PUSHED | RUN_FILES | {"notes.txt", "last-checkpoint/optimizer.pt"}


def test_private_branch_and_bare_name(hub: HubServer, run: Path) -> None:
    push_folder(run, "hidden", private=True, revision="trial/1")
    assert hub.repo("alice/hidden").private
    assert set(hub.files("alice/hidden", revision="trial/1")) >= PUSHED
    assert set(hub.files("alice/hidden")) == {".gitattributes"}
    commit = push_folder(run, "alice/later", blocking=False).result()
    assert set(hub.files("alice/later")) >= PUSHED and commit.commit_url


def test_card_of_a_folder(hub: HubServer, run: Path) -> None:
    HfApi().create_repo("alice/base")
    HfApi().upload_file(repo_id="alice/base", path_in_repo="README.md", path_or_fileobj=b"---\nlicense: mit\n---\n")
    card = write_card(run, "alice/pets", MEASURED, base_model="alice/base", tags=["mine"])
    assert (card.data.license, card.data.base_model, card.data.datasets) == ("mit", "alice/base", ["user/pictures"])
    # What was set once stays, when the model moves.
    moved = write_card(run, "alice/moved", MEASURED)
    assert (moved.data.license, moved.data.base_model) == ("mit", "alice/base")
    assert "mine" in moved.data.tags and 'model="alice/moved"' in moved.text
    for local in (str(run), "tiny", ""):
        assert write_card(run, "alice/pets", base_model=local).data.base_model in (None, "alice/base")


@pytest.mark.parametrize(("stated", "expected"), [("bsd-3-clause", "bsd-3-clause"), (None, "unknown"), (3, "unknown")])
def test_the_licence_that_timm_wrote_is_kept(stated: object, expected: str, tmp_path: Path) -> None:
    save_in_timm_layout(tiny.build("timm"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["pretrained_cfg"]["license"] = stated
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert write_card(tmp_path, "pets").data.license == expected


@pytest.mark.parametrize("given", ["runs/first", "../work/runs/first", "/"])
def test_a_card_of_a_folder_that_is_nowhere_else_says_how_to_load_the_folder(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    save_in_timm_layout(tiny.build("timm"), Path("runs", "first"))
    folder = Path("runs", "first").absolute() if given == "/" else given
    where = "runs/first" if given == "runs/first" else "pets"  # nothing of the folders above the current one
    text = write_card(folder, "pets").content
    assert f'pipeline("image-classification", model="{where}")' in text
    assert f'timm.create_model("local-dir:{where}", pretrained=True)' in text
    assert f"The model was saved in the folder `{where}`; write its path" in text
    assert model_card(None, CardSettings.load(folder)).content == text
    text = write_card(folder, "alice/pets").content
    assert 'timm.create_model("hf-hub:alice/pets", pretrained=True)' in text
    assert "saved in the folder" not in text and CardSettings.load(folder).folder is None


def test_a_card_by_hand_is_left_alone(hub: HubServer, run: Path) -> None:
    (run / "README.md").write_text("---\nlicense: mit\n---\nMy own words.\n")
    push_folder(run, "alice/pets")
    assert hub.files("alice/pets")["README.md"].decode().endswith("My own words.\n")


def test_a_temperature_that_is_no_number(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"calibration_temperature": "warm"}))
    with pytest.raises(
        ValueError, match=r"calibration_temperature in config.json must be a finite number, got 'warm'"
    ):
        write_card(run, "alice/pets")


def test_a_report_of_a_calibrated_model_without_one(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    del config["calibration_temperature"]
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"temperature 1.5000, but the model saved in .* Call trainer.fold_temp"):
        write_card(run, "alice/pets", MEASURED)
    write_card(run, "alice/pets")


def test_a_report_of_guarantees_that_the_model_does_not_store(run: Path) -> None:
    promise = PredictionSetGuarantee("lac", 0.9, 0.4, 200, Share(0.9, 0.8, 1.0, 50), 1.2, (20, 25))
    promised = Guarantees(200, 200, 50, 1.5, True, None, (25, 25), (), (promise,))
    report = replace(MEASURED, guarantees=promised)
    with pytest.raises(
        ValueError, match=r"has no thresholds. Call store_guarantees\(trainer.model.config, report.gua"
    ):
        write_card(run, "alice/pets", report)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"prediction_set_thresholds": {"lac": {"0.9": 0.4}}}))
    assert 'prediction_set_thresholds["lac"]["0.9"]' in write_card(run, "alice/pets", report).text


def test_a_card_says_only_what_is_at_hand(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The folder is not searched: a report that lies there may be about an earlier model."""
    assert "No evaluation report came" in write_card(run, "alice/pets").text
    assert "pass report= if it is about this model" in caplog.text
    assert "No evaluation report came" not in write_card(run, "alice/pets", MEASURED).text


def test_a_card_is_the_same_when_it_is_rendered_again(run: Path) -> None:
    first = write_card(run, "alice/pets", MEASURED, license="mit", tags=["mine"], language="de").content
    settings = CardSettings.load(run)
    assert settings.repo_id == "alice/pets" and settings.pictures == ("reliability.png",)
    assert model_card(saved_report(run), settings).content == first == (run / "README.md").read_text()
    assert write_card(run, "alice/pets", saved_report(run)).content == first


def test_a_folder_has_one_report(run: Path) -> None:
    """A second one takes its place, with its pictures."""
    other = replace(MEASURED, model="other", after=None, temperature=None, corruptions=REPORT.corruptions)
    write_report(other, [ROWS], run)
    with_corruptions = RUN_FILES | {"corruptions.png", "severity.png"}
    assert saved_report(run) == other
    assert set(files_to_push(run)) >= with_corruptions
    write_report(MEASURED, [ROWS, ROWS], run)
    assert saved_report(run) == MEASURED
    left = {path.name for path in run.iterdir() if path.suffix in (".png", ".parquet", ".html")} | {"evaluation.json"}
    assert left == RUN_FILES
    assert not set(files_to_push(run, with_report=False)) & with_corruptions


def test_a_page_that_is_too_large_stays_local(run: Path) -> None:
    page = run / "report.html"
    page.write_bytes(b" " * 10**6)
    assert "report.html" in files_to_push(run)
    page.write_bytes(b" " * (10**6 + 1))
    assert "report.html" not in files_to_push(run) and "evaluation.json" in files_to_push(run)


def test_a_repository_has_one_report(hub: HubServer, run: Path) -> None:
    """Reports under the names of earlier versions, and pictures that the new report lacks, are removed."""
    api = HfApi()
    api.create_repo("alice/pets")
    old = [f"v1.{ending}" for ending in ("json", "samples.npz", "reliability.png", "corruptions.png", "severity.png")]
    kept = ["vocabulary.json", "photo.reliability.png", "notes/v1.json"]
    for name in [*old, *kept, "severity.png", "corruptions.png"]:
        api.upload_file(repo_id="alice/pets", path_in_repo=name, path_or_fileobj=b"{}")
    push_folder(run, "alice/pets")
    assert set(hub.files("alice/pets")) == PUSHED | RUN_FILES | set(kept)
    assert EvaluationReport.from_json(hub.files("alice/pets")["evaluation.json"].decode()) == MEASURED


def test_a_report_of_an_earlier_model_is_not_pushed(hub: HubServer, run: Path) -> None:
    push_folder(run, "alice/pets")
    write_card(run, "alice/pets")
    push_folder(run, "alice/pets", with_report=False)
    assert set(hub.files("alice/pets")) == PUSHED
    assert "No evaluation report came" in hub.files("alice/pets")["README.md"].decode()


def test_a_card_of_another_repository_is_rendered_again(hub: HubServer, run: Path) -> None:
    write_card(run, "pets", MEASURED, license="mit")  # before it was known where it goes
    push_folder(run, "alice/pets")
    readme = hub.files("alice/pets")["README.md"].decode()
    assert 'model="alice/pets"' in readme and "license: mit" in readme
    (run / "README.md").write_text(readme + "\nMy own words.\n")
    push_folder(run, "alice/pets")
    assert hub.files("alice/pets")["README.md"].decode().endswith("My own words.\n")


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no saved model"):
        push_folder(tmp_path, "alice/pets")


@pytest.mark.slow
def test_calibrate_command_pushes(hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model, processor = load_classifier("tiny", [str(digit) for digit in range(10)])
    model.push_to_hub("alice/uncalibrated")
    processor.push_to_hub("alice/uncalibrated")
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


# ---- Failures ----


@pytest.mark.parametrize(
    ("route", "fault", "reason"),
    [
        ("commit", {"status": 503}, r"HTTP 503"),
        ("commit", {"status": 401}, r"the Hub does not know your token.*HTTP 401"),
        ("commit", {"cut": "body"}, r"the connection was cut"),
        ("commit", {"cut": "answer"}, r"the connection was cut"),
        ("upload", {"status": 507}, r"the Hub has no space \(HTTP 507\)"),
        ("preupload", {"status": 403}, r"may not write there \(HTTP 403\)"),
        ("whoami", {"status": 401}, r"the Hub does not know your token"),
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
    earlier: Future = Future()
    later = push_checkpoint(run / "checkpoint-4", "alice/going", commit_message="step 4", after=earlier)
    assert not wait([later], timeout=1).done  # it would take a fraction of that
    earlier.set_exception(OSError("the earlier one failed"))
    later.result(timeout=60)
    assert next(iter(hub.repo("alice/going").history())).title == "step 4"


# ---- Before training ----


@pytest.mark.parametrize(
    ("token", "repo_id", "error", "message"),
    [
        (None, "alice/pets", PermissionError, "you are not logged in"),
        ("hf_unknownToken", "alice/pets", PermissionError, "the Hub does not know your token"),
        (ALICE_READS, "alice/pets", PermissionError, "the token of alice may only read"),
        (BOB, "alice/pets", PermissionError, "bob may not write there"),
        (ALICE, "alice/pets with spaces", ValueError, "cannot be pushed to"),
        (ALICE, "bob/pets", PermissionError, "hub_model_id=alice/name"),
    ],
)
def test_who_may_not_push_learns_it_first(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, token: str | None, repo_id: str, error: type, message: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", token or "")
    with pytest.raises(error, match=re.escape(repo_id) + ".*" + message):
        check_push_access(repo_id)
    assert hub.store.repos == {}


def test_access_makes_repository_and_branch(hub: HubServer) -> None:
    assert check_push_access("pets", private=True, revision="trial/1") == "alice/pets"
    assert hub.repo("alice/pets").private and "trial/1" in hub.repo("alice/pets").branches
    assert check_push_access("lab/pets") == "lab/pets"
    assert check_push_access("lab/pets", revision="main") == "lab/pets"
    with pytest.raises(ValueError, match=r"'lab/pets' was to be private, but it is there already and public"):
        check_push_access("lab/pets", private=True)


def test_pushing_offline_or_to_nobody(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ConnectionError, match=r"'alice/pets' cannot be pushed to: .* cannot be reached .*later"):
            check_push_access("alice/pets")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConnectionError, match=r"HF_HUB_OFFLINE=1. Unset it"):
        check_push_access("alice/pets")
    with pytest.raises(ValueError, match=r"'alice//pets' cannot be pushed to: .* Name it user/name"):
        check_push_access("alice//pets")


@pytest.mark.parametrize(
    ("token", "repo_id", "revision", "error", "message"),
    [
        (BOB, "alice/missing", None, FileNotFoundError, "your token may not read it"),
        (BOB, "alice/hidden", None, FileNotFoundError, "the name is wrong, or it is private"),
        (None, "alice/hidden", None, FileNotFoundError, "you are not logged in"),
        (BOB, "alice/gated", None, PermissionError, "is gated, and your token's account has no access yet. Accept"),
        (None, "alice/gated", None, PermissionError, "is gated, and you are not logged in"),
        ("hf_unknownToken", "alice/open", None, PermissionError, "the Hub does not know your token"),
        (BOB, "alice/open", "v9", ValueError, "has no branch, tag or commit 'v9'"),
        (BOB, "runs/x/checkpoint-4", None, FileNotFoundError, "neither a local folder nor the id of a Hub model"),
    ],
)
def test_what_cannot_be_read(
    hub: HubServer,
    monkeypatch: pytest.MonkeyPatch,
    token: str | None,
    repo_id: str,
    revision: str | None,
    error: type,
    message: str,
) -> None:
    api = HfApi()
    for name, private in {"open": False, "hidden": True, "gated": False}.items():
        api.create_repo(f"alice/{name}", private=private)
    api.update_repo_settings("alice/gated", gated="auto")
    require_repo("Model 'x'", "alice/hidden")
    monkeypatch.setenv("HF_TOKEN", token or "")
    require_repo("Model 'x'", "alice/open") if token != "hf_unknownToken" else None
    with pytest.raises(error, match=f"^Model 'x' .*{message}"):
        require_repo("Model 'x'", repo_id, revision=revision)


def test_weights_in_a_pickle_are_not_loaded(tmp_path: Path) -> None:
    model, processor = load_classifier("tiny", ["a", "b"])
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    load_classifier(str(tmp_path), ["a", "b"])
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match=r"model.safetensors"):
        load_classifier(str(tmp_path), ["a", "b"])


def test_reason_is_found_behind_other_exceptions() -> None:
    class Answer:
        status_code = 507

    inner = OSError("inner")
    inner.response = Answer()
    outer = RuntimeError("outer")
    outer.__cause__ = inner
    assert reason_of(outer) == "the Hub has no space (HTTP 507)"
    assert reason_of(RuntimeError("just this.")) == "just this"
