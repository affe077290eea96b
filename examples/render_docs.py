"""Write the parts of README.md and docs/ that come from code and results; `--check` only says if they are current.

python examples/render_docs.py
"""

import dataclasses
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rendering import app_cost, few_images, grid_cost, measurements, promises, readme_results, study

import macs_hf


ROOT = Path(__file__).parent.parent


def arguments() -> str:
    """One row per field of the objective, from its own help."""
    rows = [
        f"| `{field.name}` | `{field.default}` | {field.metadata['help']} |".replace("||", "\\|\\|")
        for field in dataclasses.fields(macs_hf.Objective)
    ]
    return "\n".join(["| argument | default | meaning |", "| --- | --- | --- |", *rows])


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {
        "headline": readme_results.headline,
        "results": readme_results.results,
    },
    "docs/training.md": {"arguments": arguments, "sharding": measurements.sharding},
    "docs/study.md": {
        "finetuning": study.finetuning,
        "corruptions": study.corruptions,
        "conditions": study.conditions,
        "more_seeds": partial(study.table, "more_seeds"),
        "batchnorm": partial(study.table, "batchnorm"),
        "longer": study.longer,
        "original": partial(study.table, "original"),
        "probabilities": partial(study.table, "probabilities"),
        "promises": promises.under_corruption,
        "finetuning_more": study.more,
        "search": study.search,
        "second_search": study.second_search,
        "fashion": partial(study.table, "fashion"),
        "scratch": partial(study.table, "scratch"),
        "claims": study.claims,
        "bars": grid_cost.bars,
        "findings": few_images.findings,
        "more": few_images.more,
        "few_images": few_images.few_images,
    },
    "docs/measuring.md": {
        "coverage": promises.coverage,
        "guarantees": promises.guarantees,
        "ranking": promises.ranking,
    },
    "docs/corruptions.md": {"frost": promises.frost},
    "docs/cost.md": {"cost": measurements.cost},
    "docs/app.md": {"app": app_cost.app},
    "docs/exporting.md": {"exported": measurements.exported},
    "docs/jobs.md": {"smoke": measurements.smoke, "prices": grid_cost.prices},
    "examples/README.md": {"assumptions": grid_cost.assumptions},
}


def rendered(page: str, text: str) -> str:
    for name, make in PAGES[page].items():
        pattern = re.compile(rf"<!-- {name} -->\n.*?<!-- /{name} -->\n", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"{page} has no marks <!-- {name} --> and <!-- /{name} -->.")
        block = f"<!-- {name} -->\n\n{make()}\n\n<!-- /{name} -->\n"
        text = pattern.sub(lambda _, block=block: block, text, count=1)
    return text


if __name__ == "__main__":
    stale = []
    for page in PAGES:
        before = (ROOT / page).read_text()
        after = rendered(page, before)
        if before != after:
            stale.append(page)
            if "--check" not in sys.argv:
                (ROOT / page).write_text(after)
    print("written:" if "--check" not in sys.argv else "not current:", *(stale or ["none"]))
    sys.exit("--check" in sys.argv and bool(stale))
