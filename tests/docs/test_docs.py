"""README.md and docs/: their Python runs, their tables come from code and results, links exist, README stays short."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
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
DIFF = re.search(r"```diff\n(.*?)```", PAGES["README.md"], re.DOTALL)[1]
PAPER = "2603.05812"
QUICK_START = next(code.values[0] for code in SNIPPETS if "load_data(" in code.values[0])


def surroundings(folder: Path) -> dict[str, Any]:
    """What a reader is assumed to have: a model, logits, images, a trainer, a loop's usual things."""
    model, data = build("vit"), Images(16)
    labels = Images(120, seed=1).labels
    parts = ("validation", "held_out", "test")
    logits = {f"{part}_logits": 3 * torch.randn(120, NUM_LABELS) + torch.eye(NUM_LABELS)[labels] for part in parts}
    return logits | {
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
        **{f"{part}_labels": labels for part in parts},
    }


def shortened(code: str) -> str:
    return code.replace("num_train_epochs=20", "max_steps=2, use_cpu=True, disable_tqdm=True")


@pytest.mark.parametrize("code", SNIPPETS)
def test_python_in_the_pages_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_snippet(code, tmp_path, monkeypatch, guaranteed=True)


@pytest.mark.parametrize("code", [snippet for snippet in SNIPPETS if "pipeline(" in snippet.values[0]])
def test_models_without_guarantees_are_used_in_the_same_way(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_snippet(code, tmp_path, monkeypatch, guaranteed=False)


def run_snippet(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guaranteed: bool) -> None:
    monkeypatch.chdir(tmp_path)
    names = surroundings(tmp_path)
    if "pipeline(" in code:
        model, processor = load_classifier("tiny", [str(digit) for digit in range(10)])
        if guaranteed:
            model.config.abstention_thresholds = {"0.95": 0.5}
            model.config.prediction_set_thresholds = {"lac": {"0.9": 0.9}}
        model.save_pretrained("calibrated")
        processor.save_pretrained("calibrated")
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
        assert names["is_sure"] is False
    if "others" in names:
        answers = [names["best"], *names["others"]]
        assert sum(answer["score"] for answer in answers) == pytest.approx(1)
        logits = torch.tensor([[answer["score"] for answer in answers]]).double().log()
        assert len(names["names"]) == (prediction_sets(logits, 0.9).sum() if guaranteed else 10)
    if "store_guarantees(" in code:
        stored = names["model"].config.prediction_set_thresholds["lac"]["0.9"]
        assert stored == names["report"].guarantees.prediction_sets[1].threshold
    if "fold_temperature(model" in code:
        weight = names["model"].classifier.weight
        torch.testing.assert_close(weight * names["temperature"], before["classifier.weight"])
    if "export_model(" in code:
        assert names["logits"].shape == (1, NUM_LABELS) and names["report"].temperature_images == 400
    if "foggy" in code:
        assert names["foggy"].shape == names["images"].shape and names["foggy"].dtype == torch.uint8


def test_the_changed_script_runs(tmp_path: Path) -> None:
    new = "\n".join(line[1:] for line in DIFF.splitlines() if not line.startswith("-"))
    names = surroundings(tmp_path)
    names |= {"args": arguments(tmp_path, max_steps=2), "train": names["train_dataset"]}
    exec(compile(new, "diff", "exec"), names)
    assert isinstance(names["trainer"], macs_hf.MaCSTrainer)
    assert (
        AutoConfig.from_pretrained(tmp_path).calibration_temperature == names["model"].config.calibration_temperature
    )


@pytest.mark.slow
def test_the_quick_start_gives_a_good_model_as_it_stands(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", QUICK_START], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert float(re.search(r"'eval_accuracy': ([0-9.]+)", done.stdout)[1]) > 0.9
    saved = AutoConfig.from_pretrained(tmp_path / "runs" / "quick-start")
    assert saved.calibration_temperature > 0 and "0.95" in saved.abstention_thresholds  # what the page says it gives


def test_the_loop_is_what_the_trainer_does(tmp_path: Path) -> None:
    """Same objective, same seed: the same loss as inside the trainer."""
    data = Images(8)
    run = macs_hf.MaCSTrainer(model=build("vit"), args=arguments(tmp_path), train_dataset=data)
    run.model.train()
    loss = run.compute_loss(run.model, {"pixel_values": data.images, "labels": data.labels})
    seed = macs_hf.randomness.mix_seed(run.args.seed, 0, 0, 0)
    parts = macs_hf.supervise(run.model, data.images, data.labels, macs_hf.Objective(), seed=seed)
    assert torch.equal(parts.loss, loss)


def test_rendered_parts_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """README, docs and cards say what the stored results say."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    from reproduction.docs import render_pages

    assert render_pages(write=False) == [], "run `python examples/reproduce.py --docs write`"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", PAGES[page]):
        assert ((ROOT / page).parent / target).exists(), target


def test_every_method_is_named() -> None:
    for name in macs_hf.METHODS:
        assert f"`{name}`" in PAGES["docs/train.md"]


def test_make_has_the_targets_that_are_named() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    named = {target for job in jobs["test"]["strategy"]["matrix"]["include"] for target in job["targets"].split()}
    texts = [*PAGES.values(), (ROOT / "CONTRIBUTING.md").read_text(), (ROOT / ".ci" / "run").read_text()]
    named |= {target for text in texts for target in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)}
    there = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"quality", "docs", "test", "demo"} <= named <= there


def test_a_newcomer_finishes_the_readme() -> None:
    text = PAGES["README.md"]
    lines = text.splitlines()
    assert len(lines) <= 140 and max(len(line) for line in lines if not line.startswith("|")) <= 120
    assert len(text.split()) <= 1100 and len(text.partition("```")[0].split()) <= 120
    in_order = ("# macs_hf", "img.shields.io", "headline.png", "pip install", "```diff", "macs-hf calibrate")
    in_order += ("pipeline(", "<!-- headline -->", "When not to use it", "## Documentation")
    places = [text.index(part) for part in in_order]
    assert places == sorted(places)
    words = sum(len(page.split()) for name, page in PAGES.items() if name != "README.md")
    assert words <= 9300
