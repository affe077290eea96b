"""A Space of a pushed model, on the loopback Hub: what is in it, whose it is, and that it can be started."""

import ast
import compileall
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from huggingface_hub import HfApi
from loopback_hub.server import HubServer, leaks

import macs_hf
from macs_hf.cli.main import main
from macs_hf.models.loading import load_classifier
from macs_hf.publishing.space import GRADIO_VERSION, push_space, requirements, space_files


@pytest.fixture
def run(tmp_path: Path) -> Path:
    model, processor = load_classifier("tiny", ["ant", "bee"])
    for part in (model, processor):
        part.save_pretrained(tmp_path / "run")
    return tmp_path / "run"


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
    assert listed == requirements()
    assert any(line.startswith("torch>") for line in listed) and not any("extra" in line for line in listed)


def test_pushing_again_brings_it_up_to_date(run: Path, hub: HubServer) -> None:
    HfApi().create_repo("alice/insects")
    push_space("alice/insects", folder=run)
    api = HfApi()
    for name in ("macs_hf/old.py", "notes.md"):
        api.upload_file(path_or_fileobj=b"x", path_in_repo=name, repo_id="alice/insects", repo_type="space")
    push_space("alice/insects", folder=run)
    files = hub.files("alice/insects", "space")
    assert "macs_hf/old.py" not in files and "notes.md" in files


def test_a_space_of_somebody_elses_making_is_left_alone(run: Path, hub: HubServer) -> None:
    api = HfApi()
    api.create_repo("alice/insects")
    api.create_repo("alice/insects", repo_type="space", space_sdk="gradio")
    api.upload_file(path_or_fileobj=b"mine", path_in_repo="app.py", repo_id="alice/insects", repo_type="space")
    with pytest.raises(ValueError, match="serves something else"):
        push_space("alice/insects", folder=run)
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
        push_space("alice/insects", folder=run)
