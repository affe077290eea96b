"""The notebook runs as it is, offline, and was committed with its outputs, which name no machine."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from transformers import AutoModelForImageClassification

from macs_hf.report.report import load_run


NOTEBOOK = Path(__file__).parents[2] / "examples" / "audit.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]


def text_of(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "".join(value)


def shown(cell: dict[str, Any]) -> dict[str, Any]:
    """What the last line of a cell gave."""
    (result,) = [output for output in cell["outputs"] if output["output_type"] == "execute_result"]
    return {kind: text_of(content) for kind, content in result["data"].items()}


def test_it_was_run_from_top_to_bottom() -> None:
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    assert all(output["output_type"] != "error" for cell in CODE for output in cell["outputs"])
    kinds = [set(shown(cell)) for cell in CODE]
    assert sum("image/png" in kind for kind in kinds) == 2 and sum("text/html" in kind for kind in kinds) == 3


def test_outputs_name_no_machine() -> None:
    for cell in CODE:
        for output in cell["outputs"]:
            data = output.get("data", {}) | {"text": output.get("text", "")}
            said = " ".join(text_of(content) for kind, content in data.items() if kind != "image/png")
            assert not re.search(r"(?<![\w.])/(home|root|tmp|work|opt|usr|mnt|Users)/|site-packages", said), said[:300]


@pytest.mark.slow
def test_it_runs_and_leaves_a_calibrated_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in CODE:
        exec(compile(text_of(cell["source"]), cell["id"], "exec"), names)
    run = load_run("model")
    assert run.report.published.metrics["accuracy"].value > 0.8
    assert run.report == names["report"] and len(run.rows) == 600
    model = AutoModelForImageClassification.from_pretrained("model")
    assert model.config.calibration_temperature == pytest.approx(run.report.temperature.value)
    assert "data:image/png" in Path("model", "report.html").read_text()
    probabilities = names["classify"](Image.open(names["image"]), top_k=10)
    assert sum(answer["score"] for answer in probabilities) == pytest.approx(1, abs=1e-4)
