"""Runs on the page: names and reasons are shown as they are, never taken for markup; reports on the Hub are found."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import HfApi
from loopback_hub.server import HubServer
from page_reader import EVIL, HOSTILE, said

from macs_hf.app.audit import report_page
from macs_hf.app.compare import comparison_page
from macs_hf.app.jobs import hub_run, notice
from macs_hf.metrics import measure
from macs_hf.report.report import EvaluationReport, Run, save_run
from macs_hf.report.rows import SampleRows


def run(name: str, seed: int = 0) -> Run:
    logits = torch.randn(90, 3, generator=torch.Generator().manual_seed(seed))
    rows = SampleRows.from_logits(logits, torch.arange(90) % 3)
    return Run(name, EvaluationReport(EVIL, EVIL, EVIL, 90, measure(rows)), rows)


def test_names_full_of_markup() -> None:
    shown = said(comparison_page([run(EVIL), run(HOSTILE[0], 1), run(HOSTILE[2], 2)]))
    assert EVIL in shown and HOSTILE[0] in shown and HOSTILE[2] in shown
    assert EVIL in said(report_page(run("a").report, notes=[EVIL])) and said(notice(EVIL)) == EVIL


def test_the_first_run_is_the_reference() -> None:
    page = comparison_page([run("first"), run("second", 1), run("third", 2)])
    head = re.search(r"<thead>(.*?)</thead>", page)[1]
    assert re.findall(r">(\w+)<", head) == ["first", "second", "third"]
    other = dataclasses.replace(run("other"), rows=SampleRows.from_logits(np.zeros((5, 3)), np.zeros(5, int)))
    with pytest.raises(ValueError, match="labels differ"):
        comparison_page([run("first"), other])


def test_a_report_that_was_pushed_is_found(hub: HubServer, tmp_path: Path) -> None:
    pushed, api = run("pushed"), HfApi()
    save_run(pushed.report, [pushed.rows], tmp_path)
    for name in ("alice/measured", "alice/plain"):
        api.create_repo(name)
    api.upload_folder(repo_id="alice/measured", folder_path=tmp_path)
    found = hub_run("alice/measured")
    assert (found.name, found.report) == ("alice/measured", pushed.report)
    assert hub_run("alice/plain") is None and hub_run("alice/missing") is None and hub_run("resnet18") is None
