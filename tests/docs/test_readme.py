"""What README.md shows is true: its Python runs, its tables are rendered from code and results, its links exist."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tiny import Images, arguments, build
from torch.utils.data import DataLoader, TensorDataset
from transformers import ViTImageProcessor

import macs_hf
from macs_hf.models.loading import load_classifier


ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SNIPPETS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def surroundings(tmp_path: Path) -> dict[str, Any]:
    """What a reader is assumed to have: a model, data, a loop's usual things."""
    model, data = build("vit"), Images(16)
    return {
        "model": model,
        "torch": torch,
        "processor": ViTImageProcessor(size={"height": 32, "width": 32}),
        "train": Images(16),
        "validation": Images(120, seed=1),
        "test": Images(8, seed=2),
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
        "loader": DataLoader(TensorDataset(data.images, data.labels), batch_size=4),
        "images": torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8),
    }


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_python_in_the_readme_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = surroundings(tmp_path)
    code = SNIPPETS[number]
    if "MaCSTrainingArguments(" in code:
        # The reader's epochs are too many for a test.
        code = code.replace("num_train_epochs=10", "max_steps=2, use_cpu=True, disable_tqdm=True")
    if "pipeline(" in code:
        model, processor = load_classifier("tiny", [str(digit) for digit in range(10)])
        model.save_pretrained("runs/digits-tiny-macs")
        processor.save_pretrained("runs/digits-tiny-macs")
    before = {name: value.clone() for name, value in names["model"].state_dict().items()}
    exec(compile(code, f"README snippet {number}", "exec"), names)
    if "supervise(" in code:
        after = names["accelerator"].unwrap_model(names["model"]).state_dict()
        assert any(not torch.equal(before[name], after[name]) for name in before)
        assert torch.isfinite(names["parts"].loss)
    if "pipeline(" in code:
        (answers,) = names["classify"]([Image.new("RGB", (8, 8))])
        assert sum(answer["score"] for answer in names["classify"](Image.new("RGB", (8, 8)), top_k=10)) == (
            pytest.approx(1)
        )
        assert len(answers) == 5
    if "corrupt(" in code:
        assert names["foggy"].shape == names["images"].shape
        assert names["foggy"].dtype == torch.uint8


def test_the_loop_is_what_the_trainer_does(tmp_path: Path) -> None:
    """Same objective, same seed: the same loss as inside the trainer."""
    data = Images(8)
    run = macs_hf.MaCSTrainer(model=build("vit"), args=arguments(tmp_path), train_dataset=data)
    run.model.train()
    loss = run.compute_loss(run.model, {"pixel_values": data.images, "labels": data.labels})
    seed = macs_hf.randomness.mix_seed(run.args.seed, 0, 0, 0)
    parts = macs_hf.supervise(run.model, data.images, data.labels, macs_hf.Objective(), seed=seed)
    assert torch.equal(parts.loss, loss)


def test_rendered_parts_are_current() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "examples" / "render_readme.py"), "--check"], cwd=ROOT)
    assert done.returncode == 0, "run `python examples/render_readme.py`"


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_method_argument_and_make_target_is_named() -> None:
    for name in macs_hf.METHODS:
        assert f"`{name}`" in README
    for target in ("demo", "test", "test-slow", "quality", "style", "help"):
        assert f"make {target}" in README
