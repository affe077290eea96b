"""Cards of folders, and what of a folder belongs to a model."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
from huggingface_hub import HfApi
from loopback_hub.server import HubServer

from macs_hf.evaluation import write_report
from macs_hf.models.timm_layout import save_in_timm_layout
from macs_hf.publishing.card import CardSettings, model_card, saved_report, write_card
from macs_hf.publishing.push import files_to_push
from macs_hf.report.report import Guarantees, PredictionSetGuarantee, Share

from .conftest import MEASURED, ROWS, RUN_FILES
from .reports import REPORT


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
    assert model_card(None, CardSettings.load(folder)).content == text
    text = write_card(folder, "alice/pets").content
    assert 'timm.create_model("hf-hub:alice/pets", pretrained=True)' in text
    assert "saved in the folder" not in text and CardSettings.load(folder).folder is None


def changed_config(run: Path, **changes: object) -> None:
    config = json.loads((run / "config.json").read_text()) | changes
    (run / "config.json").write_text(json.dumps({name: part for name, part in config.items() if part is not None}))


def test_what_a_report_is_about_has_to_be_in_the_saved_model(run: Path) -> None:
    changed_config(run, calibration_temperature="warm")
    with pytest.raises(ValueError, match="temperature"):
        write_card(run, "alice/pets")
    changed_config(run, calibration_temperature=None)
    with pytest.raises(ValueError, match="calibration_temperature"):
        write_card(run, "alice/pets", MEASURED)
    write_card(run, "alice/pets")
    changed_config(run, calibration_temperature=1.5)
    guarantee = PredictionSetGuarantee("lac", 0.9, 0.4, 200, Share(0.9, 0.8, 1.0, 50), 1.2, (20, 25))
    guaranteed = Guarantees(200, 200, 50, 1.5, True, None, (25, 25), (), (guarantee,))
    report = replace(MEASURED, guarantees=guaranteed)
    with pytest.raises(ValueError, match="prediction_set_thresholds"):
        write_card(run, "alice/pets", report)
    changed_config(run, prediction_set_thresholds={"lac": {"0.9": 0.4}})
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
    write_report(other, ROWS[:1], run)
    with_corruptions = RUN_FILES | {"corruptions.png", "severity.png"}
    assert saved_report(run) == other
    assert set(files_to_push(run)) >= with_corruptions
    write_report(MEASURED, ROWS, run)
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
