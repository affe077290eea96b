"""A report as a page: the verdict, the tables, the pictures, and what else it has; `report.html` has all in one."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..disk.atomic_writes import write_text_atomically
from ..disk.secrets import redact
from ..plots.alt_texts import alt_texts
from ..report.evaluation import EvaluationReport
from ..report.markup import SPACE, interval_html, section, table, text
from ..report.run import PAGE_FILE
from ..report.short_names import short_name
from ..report.tables import corruption_means, measures_table, verdict_header
from . import report_findings as findings
from .corruption_shift import shift_sentences


STYLE, FILE_STYLE = (Path(__file__).parent / "templates" / name for name in ("report.css", "report_file.css"))
# Too small to read on a phone, where they are scrolled instead.
WIDE = ("reliability.png", "severity.png", "classes.png", "groups.png")
# What the parameters of the corruptions were made for.
SIZES = {"cifar": "for small images", "imagenet": "for photographs"}
# Whoever opens the file runs no script and asks no other machine for anything, whatever the report says.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def write_report_page(report: EvaluationReport, images: Mapping[str, bytes], folder: str | Path) -> Path:
    """
    Write `report.html`, which holds everything it shows: it can be mailed, and opened anywhere.

    Args:
        report ([`EvaluationReport`]): What was measured.
        images (`Mapping[str, bytes]`): Its pictures, as PNG, by the names of their files.
        folder (`str` or `Path`): The run's folder.
    """
    name = text(short_name(report.model))
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
    Everything that a report has; what it lacks is left out.

    Args:
        report ([`EvaluationReport`]): What was measured.
        images (`Mapping[str, bytes]`): Those of its pictures that are shown, as PNG, by the names of their files.
        notes (`Sequence[str]`, *optional*): What a reader should know about how it was measured.
        mistakes (`str`, *optional*): A section about wrong answers, as HTML.
    """
    described = alt_texts(report)
    drawn = {
        name: _image(content, described[name], "figure wide" if name in WIDE else "figure")
        for name, content in images.items()
    }
    said = (*notes, *findings.renamed(report), *findings.copies(report))  # a note may be the warning of the same
    parts = [
        verdict_header(report),
        *(f'<p class="notice note">{text(note)}</p>' for note in dict.fromkeys(said)),
        _measures(report),
        _reliability(drawn),
        _risk(report, drawn),
        findings.guarantees(report),
        findings.classes(report, drawn),
        findings.groups(report, drawn),
        mistakes,
        _corruptions(report, drawn),
        findings.unknowns(report),
        _origin(report),
    ]
    return f'<article class="macs report">{"".join(parts)}</article>'


def _image(content: bytes, alt: str, kind: str) -> str:
    return f'<img class="{kind}" alt="{text(alt)}" src="data:image/png;base64,{base64.b64encode(content).decode()}">'


def _measures(report: EvaluationReport) -> str:
    hint = (
        f"Measured on {report.n:,} images. Below each value its 95{SPACE}% interval. The noise floor is the "
        "calibration error that a perfectly calibrated model would get on so many images."
    )
    return section("Measured", measures_table(report), hint)


def _reliability(drawn: Mapping[str, str]) -> str:
    if "reliability.png" not in drawn:
        return ""
    hint = f"Of the answers given with a confidence of 80{SPACE}%, 80{SPACE}% should be right: on the dashed line."
    return section("Confidence and accuracy", f'<div class="stack">{drawn["reliability.png"]}</div>', hint)


def _risk(report: EvaluationReport, drawn: Mapping[str, str]) -> str:
    if report.risk_coverage is None:
        return ""
    if report.risk_coverage.risk[-1] == 0:
        return section("Risk and coverage", f"<p>None of the {report.n:,} answers was wrong: nothing to rank.</p>")
    shares = report.risk_coverage.coverage_at_risk.items()
    rows = [[f"at most {risk.replace('%', f'{SPACE}%')} wrong", interval_html(share)] for risk, share in shares]
    listed = table(["if", "images that can be answered"], rows)
    hint = "What if it answers only where it is surest? Measured on these images, and no promise for others."
    return section("Risk and coverage", f'<div class="pair">{drawn.get("risk_coverage.png", "")}{listed}</div>', hint)


def _corruptions(report: EvaluationReport, drawn: Mapping[str, str]) -> str:
    found = report.corruptions
    if found is None:
        return ""
    hint = f"Accuracy on {found.n:,} images under {len(found.cells)} corruptions at five severities"
    hint += f" (parameter set {text(found.params)}: {SIZES[found.params]})." if found.params in SIZES else "."
    said = "".join(f"<p>{text(sentence)}</p>" for sentence in shift_sentences(found))
    pictures = "".join(drawn.get(name, "") for name in ("corruptions.png", "severity.png"))
    return section("What breaks it", f'{corruption_means(found)}{said}<div class="stack">{pictures}</div>', hint)


def _origin(report: EvaluationReport) -> str:
    facts = {"model": short_name(report.model), "revision": report.model_revision}
    facts |= {"dataset": short_name(report.dataset), "configuration": report.dataset_config, "split": report.split}
    facts |= {"command": report.command}
    rows = [[name, f"<code>{text(value)}</code>"] for name, value in facts.items() if value is not None]
    if report.versions:
        rows.append(["versions", text(", ".join(f"{name} {version}" for name, version in report.versions.items()))])
    return f'<details class="part"><summary>How it was measured</summary>{table(["", ""], rows)}</details>'
