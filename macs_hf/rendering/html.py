"""A report as a page: the headline, and its sections with tables and pictures; `report.html` has all in one file."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..report.report import EvaluationReport, save_run
from ..report.rows import SampleRows
from ..report.run_folder import GALLERY, PAGE_FILE, PICTURES, redact, write_text_atomically
from ..report.sections import Table, sections, short_name
from ..report.text import headline_html, html_text, section_html, table_html
from .pictures import png, report_pictures


STYLE, FILE_STYLE = (Path(__file__).parent / "templates" / name for name in ("report.css", "report_file.css"))
# Too small to read on a phone, where they are scrolled instead.
WIDE = ("reliability.png", "severity.png", "classes.png", "groups.png")
# Whoever opens the file runs no script and asks no other machine for anything, whatever the report says.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def write_report(report: EvaluationReport, rows: Sequence[SampleRows], folder: str | Path) -> list[Path]:
    """
    Write `evaluation.json`, `samples.parquet`, `report.html` and the pictures to `folder`, in place of those of an
    earlier report.

    Args:
        report, rows: As [`evaluate_checkpoint`] returns them.
        folder (`str` or `Path`): The run's folder.

    Returns:
        `list[Path]`: What was written.
    """
    folder = Path(folder)
    written = save_run(report, rows, folder)
    for picture in (*PICTURES, GALLERY):
        (folder / picture).unlink(missing_ok=True)
    images = {name: png(figure) for name, figure in report_pictures(report)}
    for name, content in images.items():
        (folder / name).write_bytes(content)
    page = write_report_page(report, images, folder)
    return [*written, page, *(folder / name for name in images)]


def write_report_page(report: EvaluationReport, images: Mapping[str, bytes], folder: str | Path) -> Path:
    """Write `report.html`, which holds everything it shows, pictures too: it can be mailed, and opened anywhere."""
    name = html_text(short_name(report.model))
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" '
        f'content="light dark"><title>{name}: can its probabilities be trusted?</title>'
        f"<style>{FILE_STYLE.read_text(encoding='utf-8')}{STYLE.read_text(encoding='utf-8')}</style>"
    )
    body = f'{report_article(report, images)}<footer class="macs">Made with macs_hf.</footer>'
    path = Path(folder) / PAGE_FILE
    write_text_atomically(
        path, redact(f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n')
    )
    return path


def report_article(
    report: EvaluationReport, images: Mapping[str, bytes], *, notes: Sequence[str] = (), mistakes: str = ""
) -> str:
    """
    Everything that a report has, with those of its pictures that are given as PNG by their names; notes on how it was
    measured come first, and a section of HTML about wrong answers last.
    """
    parts = sections(report)
    said = {part.lead for part in parts}  # a note may be the warning of the same
    new = [html_text(note) for note in dict.fromkeys(notes) if note not in said]
    notices = "".join(f'<p class="notice note">{note}</p>' for note in new)
    body = ""
    for part in parts:
        drawn = "".join(
            image_html(images[name], alt, "figure wide" if name in WIDE else "figure")
            for name, alt in part.pictures.items()
            if name in images
        )
        body += section_html(part, f'<div class="stack">{drawn}</div>' if drawn else "")
    return f'<article class="macs report">{headline_html(report)}{notices}{body}{mistakes}{_origin(report)}</article>'


def image_html(content: bytes, alt: str, kind: str) -> str:
    """A PNG inside the page itself, so that no file of it can be fetched by others."""
    encoded = base64.b64encode(content).decode()
    return f'<img class="{kind}" alt="{html_text(alt)}" src="data:image/png;base64,{encoded}">'


def _origin(report: EvaluationReport) -> str:
    facts = {"model": short_name(report.model), "revision": report.model_revision}
    facts |= {"dataset": short_name(report.dataset), "configuration": report.dataset_config, "split": report.split}
    facts |= {"command": report.command}
    facts |= {"versions": ", ".join(f"{name} {version}" for name, version in report.versions.items()) or None}
    listed = table_html(Table(("", ""), [fact for fact in facts.items() if fact[1] is not None]))
    return f'<details class="part"><summary>How it was measured</summary>{listed}</details>'
