"""What `make docs` adds to MkDocs: README as first page, the API reference, files outside of docs/, our docstrings."""

import importlib
import posixpath
import re
from pathlib import Path
from typing import Any

from griffe import Extension, Object
from mkdocs.structure.files import File, Files


ROOT = Path(__file__).parents[1]
# The pages of the reference: their packages, whose public names are listed.
REFERENCE = {
    "training": ("training",),
    "objective": ("objective", "pixels"),
    "calibration": ("calibration",),
    "metrics": ("metrics",),
    "corruptions": ("corruptions",),
    "data": ("data", "models"),
    "reports": ("evaluation", "report", "rendering", "publishing", "exporting"),
}
NAMES = {"pixels": ["PixelStats"], "exporting": ["ExportReport", "OnnxClassifier", "export_model"]}  # no packages
LINK = re.compile(r"(\[[^\[\]]*)(\]\()(?!https?:|#)([^)#\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Add what is made here, and every file outside of docs/ that a page links to."""
    for name, packages in REFERENCE.items():
        files.append(File.generated(config, f"reference/{name}.md", content=_reference(packages)))
    pages = ["README.md", *(f"docs/{path.name}" for path in Path(config.docs_dir).glob("*.md"))]
    shown = {"README.md": None}
    for page in pages:  # grows
        for _, _, target in LINK.findall((ROOT / page).read_text(encoding="utf-8")):
            outside = _in_repository(page, target)
            if not outside.startswith("docs/") and (ROOT / outside).is_file():
                shown.setdefault(outside)
                if outside.endswith(".md") and outside not in pages:
                    pages.append(outside)
    for path in shown:
        files.append(_copied(path, config))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links as they are in the site; a link to a folder becomes its name. Badges would be loaded from elsewhere."""
    here = "README.md" if page.file.src_uri == "index.md" else page.file.src_uri
    here = here if (ROOT / here).is_file() else f"docs/{here}"

    def link(found: re.Match[str]) -> str:
        target = _in_repository(here, found[3])
        if (ROOT / target).is_dir():
            return found[1][1:]
        return f"{found[1]}]({posixpath.relpath(_served(target), posixpath.dirname(page.file.src_uri) or '.')}"

    without_badges = re.sub(r"^.*https://img\.shields\.io.*\n", "", markdown, flags=re.MULTILINE)
    return LINK.sub(link, without_badges) if (ROOT / here).is_file() else markdown


def _in_repository(page: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def _copied(path: str, config: Any) -> File:
    return File.generated(config, _served(path), abs_src_path=str(ROOT / path))


def _served(path: str) -> str:
    """Where a file of the repository is in the site: README.md is its first page, code is shown as text."""
    path = "index.md" if path == "README.md" else path.removeprefix("docs/")
    return path if Path(path.partition("#")[0]).suffix in (".md", ".png", ".html") else f"{path}.txt"


def _reference(packages: tuple[str, ...]) -> str:
    parts = []
    for package in packages:
        module = importlib.import_module(f"macs_hf.{package}")
        names = NAMES.get(package) or [name for name in module.__all__ if not name.isupper()]
        parts += [f"# `macs_hf.{package}`", module.__doc__.strip()]
        parts += [f"::: macs_hf.{package}.{name}" for name in names]
    return "\n\n".join(parts)


class HuggingFaceDocstrings(Extension):
    """Docstrings in the style of transformers, as Markdown."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _as_markdown(obj.docstring.value)


def _as_markdown(docstring: str) -> str:
    """A list of arguments below `Args:`, a paragraph below other headings; the rest is Markdown already."""
    lines, heading = [], None
    for line in docstring.split("\n"):
        if found := re.fullmatch(r"(Args|Returns|Raises|Yields):", line):
            heading = found[1]
            lines += ["", f"**{heading.replace('Args', 'Arguments')}**", ""]
        elif heading is None or (line and not line.startswith("    ")):
            heading = None
            lines.append(line)
        elif heading == "Args" and (found := re.match(r"    ([\w*][\w*, ]*?)( \(.*\))?:( |$)", line)):
            lines.append(f"- **{found[1]}**{found[2] or ''}: {line[found.end() :]}")
        else:
            lines.append(line[4:] if heading != "Args" else line)
    return re.sub(r"\[`~?([\w.]+)`\](?![\[(])", r"`\1`", "\n".join(lines))
