"""`report.html`: one file that says what the report says, runs nothing, and asks nobody for anything."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from page_reader import EVIL, HOSTILE, Reader
from publishing.reports import FOUND

from macs_hf.metrics import confusion_matrix, group_measures, measure
from macs_hf.rendering import report_pictures
from macs_hf.rendering.html import report_article, write_report_page
from macs_hf.rendering.pictures import picture, png
from macs_hf.report.report import EvaluationReport, Temperature
from macs_hf.report.rows import SampleRows
from macs_hf.report.run_folder import PICTURES
from macs_hf.report.sections import renamed_line, sections
from macs_hf.report.text import SPACE


PIXEL = png(picture(0.1, 0.1))
TOKEN = "hf_" + "a" * 34
PLAIN = replace(
    FOUND, model="/home/someone/runs/best", dataset="/home/someone/pictures", command=f"macs-hf evaluate {TOKEN}"
)


def hostile() -> EvaluationReport:
    """With names that are markup wherever there are names."""
    groups = tuple(replace(group, name=name) for group, name in zip(FOUND.classes.groups, HOSTILE, strict=True))
    found = replace(PLAIN, classes=replace(FOUND.classes, groups=groups), split=EVIL, command=EVIL, model=EVIL)
    found = replace(
        found, groups=replace(FOUND.groups, column=EVIL), confusion=replace(FOUND.confusion, names=tuple(HOSTILE))
    )
    return replace(found, temperature=Temperature(1.0, EVIL), renamed_classes=((EVIL, EVIL),))


def texts(report: EvaluationReport) -> dict[str, str]:
    """What each picture shows, in words."""
    return {name: alt for part in sections(report) for name, alt in part.pictures.items()}


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
    assert sorted(file.alts) == sorted(texts(PLAIN).values()) and len(file.alts) == len(PICTURES)
    assert "best on pictures, test" in said and "/home" not in said
    assert TOKEN not in page.read_text() and "macs-hf evaluate" in said
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_note_is_shown_once() -> None:
    """The app passes on the warnings of the library, of which other class names are one."""
    renamed = replace(PLAIN, renamed_classes=(("LABEL_0", "cat"),))
    line = renamed_line(renamed.renamed_classes)
    page = report_article(renamed, {}, notes=[line, "something else", "something else"])
    assert page.count(line) == 1 and page.count('<p class="notice note">something else</p>') == 1
    assert "LABEL_0" not in report_article(PLAIN, {})


def test_nothing_is_run_or_fetched(tmp_path: Path) -> None:
    page = write_report_page(hostile(), {"reliability.png": PIXEL}, tmp_path)
    file, text = read(page), page.read_text()
    assert EVIL in file.said and all(name in file.said for name in HOSTILE)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    assert "default-src 'none'" in policy and "script" not in policy
    assert not re.search(r"@import|url\(|<script|<link|<iframe|\bhref=|\bsrc=\"(?!data:image/png;base64,)", text)


def test_every_picture_has_a_name_and_a_text() -> None:
    assert dict(report_pictures(PLAIN)).keys() == texts(PLAIN).keys() == PICTURES.keys()


@pytest.mark.parametrize("size", [1, 12])
def test_tiny_samples_can_be_drawn(size: int) -> None:
    rows = SampleRows.from_logits(torch.eye(3)[torch.arange(size) % 3] * 3, torch.arange(size) % 3)
    tiny = EvaluationReport("m", "d", "test", size, measure(rows, n_resamples=20))
    tiny = replace(tiny, confusion=confusion_matrix(rows), classes=group_measures(rows))
    assert [png(figure)[:4] for _, figure in report_pictures(tiny)] == [b"\x89PNG"] * 3
    assert "none" in texts(tiny)["confusion.png"]
