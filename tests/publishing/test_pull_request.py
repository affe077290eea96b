"""Calibrated heads as pull requests to other people's repositories."""

import json
from pathlib import Path

import pytest
import torch
from digits_model import OVERCONFIDENT, save_digits_model
from loopback_hub.server import ALICE_READS, HubServer
from safetensors.torch import load

from macs_hf.cli.main import main
from macs_hf.publishing.pull_request import check_pull_request_access, description
from macs_hf.publishing.push import PushError
from macs_hf.report import EvaluationReport


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {name: tmp_path_factory.mktemp(name) for name in ("overconfident", "fair")}
    save_digits_model(folders["overconfident"])
    save_digits_model(folders["fair"], temperature=1.0)
    return folders


def publish(hub: HubServer, repo_id: str, folder: Path) -> None:
    """Somebody else's model, in two shards as they once were."""
    repo = hub.store.create("model", repo_id)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    files |= {"README.md": b"Bob's model.\n", "model-00001-of-00002.safetensors": b"old", "pytorch_model.bin": b"old"}
    added = {name: hub.store.add_bytes(repo, content) for name, content in files.items()}
    hub.store.commit(repo, "main", title="a model", author=repo.owner, add=added)


def calibrate(folder: Path, model: str, *options: str) -> int:
    options = ("--dataset", "digits", "--cpu", "--output_dir", str(folder), "--create_pr", *options)
    return main(["calibrate", model, *options])


def test_a_pull_request_holds_the_head_and_the_report(
    hub: HubServer, models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    publish(hub, "bob/digits", models["overconfident"])
    before = hub.files("bob/digits")
    assert calibrate(tmp_path / "out", "bob/digits") == 0
    assert f"Pull request: {hub.endpoint}/bob/digits/discussions/1" in capsys.readouterr().out

    (request,) = hub.repo("bob/digits").pull_requests
    report = EvaluationReport.load(tmp_path / "out" / "evaluation.json")
    assert report.temperature.value == pytest.approx(OVERCONFIDENT, rel=1e-4)
    assert request["author"] == "alice" and request["target"] == "main"
    assert f"{report.temperature.value:.4f}" in request["title"]
    assert request["description"] == description(report, ["pytorch_model.bin"])
    assert "135 other images of train (a tenth, split off), which should not be among" in request["description"]

    assert hub.files("bob/digits") == before  # nothing happened to the repository itself
    after = hub.files("bob/digits", revision="refs/pr/1")
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert changed == {"model.safetensors", "config.json", "model-00001-of-00002.safetensors"}
    assert "model-00001-of-00002.safetensors" not in after
    old, new = (json.loads(files["config.json"]) for files in (before, after))
    assert new == old | {"calibration_temperature": pytest.approx(report.temperature.value)}
    weights, calibrated = (load(files["model.safetensors"]) for files in (before, after))
    assert weights.keys() == calibrated.keys()
    for name, value in weights.items():
        expected = value / report.temperature.value if name.startswith("classifier") else value
        torch.testing.assert_close(calibrated[name], expected)


def test_the_text_shows_both_states_and_the_command(hub: HubServer, models: dict[str, Path], tmp_path: Path) -> None:
    publish(hub, "bob/digits", models["overconfident"])
    calibrate(tmp_path / "out", str(models["overconfident"]), "--push_to_hub", "bob/digits")
    text = hub.repo("bob/digits").pull_requests[0]["description"]
    report = EvaluationReport.load(tmp_path / "out" / "evaluation.json")
    for part in (report.before, report.after):
        assert f"{part.metrics['nll'].value:.3f} [" in text
    assert "| | before | with this change |" in text
    assert "--push_to_hub bob/digits" in text
    assert "`pytorch_model.bin` would still be uncalibrated" in text


def test_a_temperature_that_may_be_chance_is_not_offered(
    hub: HubServer, models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    publish(hub, "bob/fair", models["fair"])
    assert calibrate(tmp_path / "out", "bob/fair") == 0
    assert "No pull request: " in capsys.readouterr().out
    assert hub.repo("bob/fair").pull_requests == []


@pytest.mark.parametrize(
    ("token", "model", "options", "message"),
    [
        ("", "bob/digits", (), "you are not logged in"),
        (ALICE_READS, "bob/digits", (), "the token of alice may only read"),
        ("hf_unknown", "bob/digits", (), "does not know your token"),
        (None, "bob/nothing", (), "'bob/nothing' is not at"),
        (None, "bob/digits", ("--model_revision", "old"), "leave --model_revision out"),
        (None, "bob/digits", ("--private",), "leave --private out"),
    ],
)
def test_what_cannot_be_proposed_is_said_before_the_work(
    hub: HubServer,
    token: str | None,
    model: str,
    options: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    hub.store.create("model", "bob/digits")
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(SystemExit) as caught:
        calibrate(tmp_path / "out", model, *options)
    assert caught.value.code == 2 and message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_local_folder_has_nobody_to_ask(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a local folder"):
        check_pull_request_access(str(tmp_path))


def test_a_refused_pull_request_leaves_the_model(hub: HubServer, models: dict[str, Path], tmp_path: Path) -> None:
    publish(hub, "bob/digits", models["overconfident"])
    hub.inject("commit", status=403)
    with pytest.raises(SystemExit) as caught:
        calibrate(tmp_path / "out", "bob/digits")
    assert isinstance(caught.value.__cause__, PushError)
    assert "pull request to 'bob/digits' failed" in str(caught.value.__cause__)
    assert (tmp_path / "out" / "model.safetensors").is_file()
