"""`report.html`: one file that says what the report says, runs nothing, and asks nobody for anything."""

import base64
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from page_reader import EVIL, HOSTILE, Reader

from macs_hf.metrics import confusion_matrix, group_measures, measure, risk_coverage
from macs_hf.rendering import alt_texts, report_pictures
from macs_hf.rendering.html import report_article, write_report_page
from macs_hf.rendering.pictures import png
from macs_hf.report.report import Cell, CorruptionTable, EvaluationReport, Temperature
from macs_hf.report.rows import CORRUPTIONS, SEVERITIES, SampleRows
from macs_hf.report.run_folder import PICTURES
from macs_hf.report.sections import renamed_line, sections
from macs_hf.report.text import SPACE


PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TOKEN = "hf_" + "a" * 34


def report(names: list[str]) -> EvaluationReport:
    logits = 3 * torch.randn(90, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(90) % 3
    rows, scaled = SampleRows.from_logits(logits, labels), SampleRows.from_logits(logits / 2, labels)
    cells = {name: {s: Cell(90, 0.5 - s / 20, 1.0, 0.1, 1.0, 0.05) for s in SEVERITIES} for name in CORRUPTIONS}
    return EvaluationReport(
        "/home/someone/runs/best",
        "/home/someone/pictures",
        "test",
        90,
        measure(rows, n_resamples=20),
        measure(scaled, n_resamples=20),
        Temperature(2.0),
        classes=group_measures(scaled, names=names),
        confusion=confusion_matrix(scaled, names=names),
        groups=group_measures(scaled, [names[place % 3] for place in range(90)], column=names[0]),
        risk_coverage=risk_coverage(scaled),
        corruptions=CorruptionTable(
            "cifar", "generated", 90, cells, Cell(90, 0.6, 1.0, 0.1, 1.0, 0.05), temperature=2.0
        ),
        command=f"macs-hf evaluate --token {TOKEN}",
    )


PLAIN = report(["ant", "bee", "cat"])


class File(Reader):
    """Also knows what a whole file has, and collects the alternative texts."""

    def __init__(self) -> None:
        super().__init__()
        self.alts: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in ("html", "head", "body", "meta", "style", "footer"):
            assert {name for name, _ in attributes} <= {"lang", "charset", "http-equiv", "content", "name", "class"}
            return
        super().handle_starttag(tag, attributes)
        if tag == "img":
            self.alts.append(dict(attributes)["alt"])


def read(path: Path) -> File:
    file = File()
    file.feed(path.read_text(encoding="utf-8"))
    return file


def test_the_file_says_what_the_report_says(tmp_path: Path) -> None:
    images = dict.fromkeys(PICTURES, PIXEL)
    page = write_report_page(PLAIN, images, tmp_path)
    file = read(page)
    said = file.said.replace(SPACE, " ")
    for part in (PLAIN.before, PLAIN.after):
        ece = part.metrics["ece"]
        assert f"{100 * ece.value:.2f} % [{100 * ece.low:.2f}, {100 * ece.high:.2f}]" in said
        assert f"{100 * part.noise_floor:.2f} %" in said
    for part in sections(PLAIN):
        assert part.title in said and part.lead in said and all(note in said for note in part.notes)
        assert part.table is None or all(cell in said for row in part.table.rows for cell in row)
    assert f"mean of the standard 15{100 * PLAIN.corruptions.mean(CORRUPTIONS):.1f} %" in said
    assert sorted(file.alts) == sorted(alt_texts(PLAIN).values()) and len(file.alts) == len(PICTURES)
    assert "best on pictures, test" in said and "/home" not in said
    assert TOKEN not in page.read_text() and "macs-hf evaluate --token" in said
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_note_is_shown_once() -> None:
    """The app passes on the warnings of the library, of which other class names are one."""
    renamed = replace(PLAIN, renamed_classes=(("LABEL_0", "cat"),))
    line = renamed_line(renamed.renamed_classes)
    page = report_article(renamed, {}, notes=[line, "something else", "something else"])
    assert page.count(line) == 1 and page.count('<p class="notice note">something else</p>') == 1
    assert "LABEL_0" not in report_article(PLAIN, {})


def test_nothing_is_run_or_fetched(tmp_path: Path) -> None:
    given = replace(report(HOSTILE), split=EVIL, command=EVIL, model=EVIL, temperature=Temperature(1.0, EVIL))
    given = replace(given, renamed_classes=((EVIL, EVIL),))
    page = write_report_page(given, {"reliability.png": PIXEL}, tmp_path)
    file, text = read(page), page.read_text()
    assert EVIL in file.said and all(name in file.said for name in HOSTILE)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    assert "default-src 'none'" in policy and "script" not in policy
    assert not re.search(r"@import|url\(|<script|<link|<iframe|\bhref=|\bsrc=\"(?!data:image/png;base64,)", text)


def test_every_picture_has_a_name_and_a_text() -> None:
    pictures = dict(report_pictures(PLAIN))
    texts = alt_texts(PLAIN)
    assert pictures.keys() == texts.keys() == PICTURES.keys()
    assert all(number in texts["severity.png"] for number in ("60.0 %", "25.0 %", "5.0 %"))
    for part in sections(PLAIN)[1:]:
        assert all(name in ("severity.png", "confusion.png") or part.finding in texts[name] for name in part.pictures)
    assert sections(PLAIN)[-2].notes[-1] in texts["confusion.png"]
    assert png(pictures["groups.png"]).startswith(b"\x89PNG")


@pytest.mark.parametrize("size", [1, 12])
def test_tiny_samples_can_be_drawn(size: int) -> None:
    rows = SampleRows.from_logits(torch.eye(3)[torch.arange(size) % 3] * 3, torch.arange(size) % 3)
    tiny = EvaluationReport("m", "d", "test", size, measure(rows, n_resamples=20))
    tiny = replace(tiny, confusion=confusion_matrix(rows), classes=group_measures(rows))
    assert [png(figure)[:4] for _, figure in report_pictures(tiny)] == [b"\x89PNG"] * 3
    assert "none" in alt_texts(tiny)["confusion.png"]
