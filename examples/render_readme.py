"""Write the parts of README.md that come from code and committed results; `--check` only says if they are current.

python examples/render_readme.py
"""

import dataclasses
import json
import re
import sys
from pathlib import Path

from macs_hf import Objective


ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "model_cards" / "benchmarks"


def arguments() -> str:
    """One row per field of the objective, from its own help."""
    rows = [
        f"| `{field.name}` | `{field.default}` | {field.metadata['help']} |".replace("||", "\\|\\|")
        for field in dataclasses.fields(Objective)
    ]
    return "\n".join(["| argument | default | meaning |", "| --- | --- | --- |", *rows])


def results() -> str:
    return "\n\n".join(part() for part in (training_cost,))


def training_cost() -> str:
    """Step time and memory of each method over plain Trainer, as measured."""
    data = json.loads((RESULTS / "training.json").read_text())
    methods = list(next(iter(data["models"].values()))["step_time_ratio"])
    lines = ["| model | " + " | ".join(methods) + " |", "| --- |" + " --- |" * len(methods)]
    for name, model in data["models"].items():
        lines.append(
            f"| {name} | " + " | ".join(f"{model['step_time_ratio'][method]:.2f}" for method in methods) + " |"
        )
    return "\n".join(["Time of a training step over that of plain `Trainer` with cross-entropy:", "", *lines])


SECTIONS = {"arguments": arguments, "results": results}


def rendered(text: str) -> str:
    for name, make in SECTIONS.items():
        pattern = re.compile(rf"(<!-- {name} -->\n)(?:.*?(<!-- /{name} -->\n))?", re.DOTALL)
        assert pattern.search(text), f"README.md has no <!-- {name} --> mark"
        block = f"<!-- {name} -->\n\n{make()}\n\n<!-- /{name} -->\n"
        text = pattern.sub(lambda _, block=block: block, text, count=1)
    return text


if __name__ == "__main__":
    readme = ROOT / "README.md"
    current = rendered(readme.read_text())
    if "--check" in sys.argv:
        sys.exit(current != readme.read_text())
    readme.write_text(current)
