"""What README.md and docs/ show is true: Python runs, tables come from code and results, links exist."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tiny import NUM_LABELS, Images, arguments, build
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoConfig, ViTImageProcessor

import macs_hf
from macs_hf.calibration import prediction_sets
from macs_hf.models import load_classifier


ROOT = Path(__file__).parents[2]
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"))}
SNIPPETS = [
    pytest.param(code, id=f"{page}-{number}", marks=[pytest.mark.slow] * ("export_model(" in code))
    for page, text in sorted(PAGES.items())
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
]
QUICK_START = next(code.values[0] for code in SNIPPETS if "load_data(" in code.values[0])


def surroundings(folder: Path) -> dict[str, Any]:
    """What a reader is assumed to have: a model, logits, images, a trainer, a loop's usual things."""
    model, data = build("vit"), Images(16)
    held_out = Images(120, seed=1)
    return {
        "model": model,
        "trainer": macs_hf.MaCSTrainer(model=model, args=arguments(folder), train_dataset=data),
        "validation": Images(400, seed=2),
        "test": Images(40, seed=3),
        "processor": ViTImageProcessor(size={"height": 32, "width": 32}),
        "torch": torch,
        "train_dataset": data,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
        "loader": DataLoader(TensorDataset(data.images, data.labels), batch_size=4),
        "images": torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8),
        "validation_logits": 3 * torch.randn(120, NUM_LABELS) + torch.eye(NUM_LABELS)[held_out.labels],
        "validation_labels": held_out.labels,
        "held_out_logits": 3 * torch.randn(120, NUM_LABELS) + torch.eye(NUM_LABELS)[held_out.labels],
        "held_out_labels": held_out.labels,
        "test_logits": 3 * torch.randn(120, NUM_LABELS) + torch.eye(NUM_LABELS)[held_out.labels],
        "test_labels": held_out.labels,
    }


def shortened(code: str) -> str:
    return code.replace("num_train_epochs=20", "max_steps=2, use_cpu=True, disable_tqdm=True")


@pytest.mark.parametrize("code", SNIPPETS)
def test_python_in_the_pages_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = surroundings(tmp_path)
    if "pipeline(" in code:
        model, processor = load_classifier("tiny", [str(digit) for digit in range(10)])
        model.config.abstention_thresholds = {"0.95": 0.5}
        model.config.prediction_set_thresholds = {"lac": {"0.9": 0.9}}
        model.save_pretrained("runs/few_digits-tiny-macs")
        processor.save_pretrained("runs/few_digits-tiny-macs")
        Image.new("RGB", (8, 8)).save("image.png")
    if "export_model(" in code:
        pytest.importorskip("onnxruntime")
    before = {name: value.clone() for name, value in names["model"].state_dict().items()}
    exec(compile(shortened(code), "snippet", "exec"), names)
    if "supervise(" in code:
        after = names["accelerator"].unwrap_model(names["model"]).state_dict()
        assert any(not torch.equal(before[name], after[name]) for name in before)
        assert torch.isfinite(names["parts"].loss)
    if "CalibrationCallback(" in code:
        assert any("eval_ece" in entry for entry in names["trainer"].state.log_history)
    if "pipeline(" in code:
        answers = [names["best"], *names["others"]]
        assert sum(answer["score"] for answer in answers) == pytest.approx(1)
        logits = torch.tensor([[answer["score"] for answer in answers]]).double().log()
        assert len(names["names"]) == prediction_sets(logits, 0.9).sum() and names["is_sure"] is False
    if "store_guarantees(" in code:
        stored = names["model"].config.prediction_set_thresholds["lac"]["0.9"]
        assert stored == names["report"].guarantees.prediction_sets[1].threshold
    if "fold_temperature(model" in code:
        weight = names["model"].classifier.weight
        torch.testing.assert_close(weight * names["temperature"], before["classifier.weight"])
    if "export_model(" in code:
        assert names["logits"].shape == (1, NUM_LABELS) and names["report"].int8.temperature_images == 400
    if "foggy" in code:
        assert names["foggy"].shape == names["images"].shape and names["foggy"].dtype == torch.uint8


@pytest.mark.slow
def test_the_quick_start_gives_a_good_model_as_it_stands(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", QUICK_START], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert float(re.search(r"'eval_accuracy': ([0-9.]+)", done.stdout)[1]) > 0.9
    saved = AutoConfig.from_pretrained(tmp_path / "runs" / "quick-start")
    assert saved.calibration_temperature != 1 and "0.95" in saved.abstention_thresholds  # what the page says it gives


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
    """README and docs say what the stored results say."""
    done = subprocess.run([sys.executable, str(ROOT / "examples" / "reproduce.py"), "--docs", "check"], cwd=ROOT)
    assert done.returncode == 0, "run `python examples/reproduce.py --docs write`"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", PAGES[page]):
        assert ((ROOT / page).parent / target).exists(), target


def test_every_method_and_make_target_is_named() -> None:
    for name in macs_hf.METHODS:
        assert f"`{name}`" in PAGES["README.md"] and f"`{name}`" in PAGES["docs/training.md"]
    for target in ("demo", "test", "help", "dist"):
        assert f"make {target}" in PAGES["README.md"]


def test_a_newcomer_finishes_the_readme() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 200
