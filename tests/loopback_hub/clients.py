"""Clients in processes of their own: the Hugging Face libraries read `HF_ENDPOINT` when they are imported."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from loopback_hub.server import ALICE, HubServer


def run_client(
    hub: HubServer,
    *functions: Callable[..., Any],
    args: Iterable[Any] = (),
    token: str | None = ALICE,
    home: Path | None = None,
) -> Any:
    """Call the last of `functions` in a new process which talks to `hub`, and return its result.

    Functions are sent as source, so that they import what they need in the new process; all but the last are there
    to be called by it. Arguments and result are JSON.
    """
    env = {**os.environ, **hub.env(token, home)}
    folder = Path(env["HF_HOME"])
    script, result = folder / "client.py", folder / "result.json"
    sources = [
        "from __future__ import annotations",
        "import json, sys",
        *(inspect.getsource(function) for function in functions),
        f"result = {functions[-1].__name__}(*json.loads(sys.argv[1]))",
        "with open(sys.argv[2], 'w') as file:\n    json.dump(result, file)\n",
    ]
    script.write_text("\n\n".join(sources))
    command = [sys.executable, str(script), json.dumps(list(args)), str(result)]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{functions[-1].__name__} failed:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}")
    return json.loads(result.read_text())


# ---- What they do ----
# Sent as source by `run_client`.


def push_data_and_models(metric_folder: str) -> None:
    """A dataset of three classes, base models of other classes, and the metric as a Space."""
    import numpy as np
    import timm
    import torch
    from datasets import ClassLabel, Dataset, DatasetDict, Features, Image
    from huggingface_hub import HfApi
    from transformers import ResNetConfig, ResNetForImageClassification, ViTImageProcessor

    features = Features({"picture": Image(), "shape": ClassLabel(names=["circle", "square", "triangle"])})
    rng = np.random.default_rng(0)

    def split(size: int) -> Dataset:
        labels = rng.integers(0, 3, size)
        pixels = rng.integers(0, 200, (size, 40, 44, 3), dtype=np.uint8)
        for image, label in zip(pixels, labels, strict=True):
            image[..., label] += 55
        return Dataset.from_dict({"picture": list(pixels), "shape": labels.tolist()}, features)

    parts = {"train": 4, "validation": 1, "test": 1}  # files
    DatasetDict(train=split(120), validation=split(110), test=split(40)).push_to_hub("alice/shapes", num_shards=parts)

    torch.manual_seed(0)
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=5)
    ResNetForImageClassification(config).push_to_hub("alice/base")
    ViTImageProcessor(size={"height": 32, "width": 32}).push_to_hub("alice/base")
    api = HfApi()
    card = b"---\nlicense: mit\n---\nA base.\n"
    api.upload_file(repo_id="alice/base", path_in_repo="README.md", path_or_fileobj=card)
    model = timm.create_model("test_resnet", num_classes=7)
    model.pretrained_cfg |= {"input_size": (3, 32, 32), "crop_pct": 1.0}
    timm.models.push_to_hf_hub(model, "alice/timm-base", model_config={"num_classes": 7})

    api.create_repo("alice/ece", repo_type="space", space_sdk="gradio")
    api.upload_folder(
        repo_id="alice/ece", repo_type="space", folder_path=metric_folder, ignore_patterns="__pycache__/*"
    )


def use_pushed_models(models: list[list[str]]) -> dict[str, dict[str, Any]]:
    """Load with the libraries alone, and compare with the rows that the trainer measured on the test split."""
    import sys

    sys.modules["macs_hf"] = None  # importing it fails

    import evaluate
    import numpy as np
    import pyarrow.parquet as pq
    import timm
    import torch
    from datasets import load_dataset
    from huggingface_hub import hf_hub_download, model_info
    from transformers import AutoImageProcessor, AutoModelForImageClassification, pipeline

    torch.set_num_threads(1)
    try:
        import macs_hf  # noqa: F401
    except ImportError:
        pass
    else:
        raise AssertionError("macs_hf can be imported")
    test = load_dataset("alice/shapes", split="test")
    images = [row["picture"].convert("RGB") for row in test]
    names = test.features["shape"].names
    results, scored = {}, {}
    for repo, revision in models:
        stored = pq.read_table(hf_hub_download(repo, "samples.parquet", revision=revision))
        rows = {name: stored[name].to_numpy() for name in ("label", "prediction", "confidence")}

        def difference(probabilities: torch.Tensor, rows: dict[str, np.ndarray] = rows) -> float:
            probabilities = probabilities.numpy()
            assert (probabilities.argmax(1) == rows["prediction"]).all()
            return float(np.abs(probabilities.max(1) - rows["confidence"]).max())

        processor = AutoImageProcessor.from_pretrained(repo, revision=revision)
        model = AutoModelForImageClassification.from_pretrained(repo, revision=revision)
        assert [model.config.id2label[i] for i in range(3)] == names
        answers = pipeline("image-classification", model=repo, revision=revision)(images, top_k=3)
        by_name = [{answer["label"]: answer["score"] for answer in answer_of} for answer_of in answers]
        with torch.no_grad():
            pixels = torch.stack([processor(image, return_tensors="pt")["pixel_values"][0] for image in images])
            probabilities = model(pixels).logits.softmax(-1)
        info = model_info(repo, revision=revision)
        result = {
            "auto": difference(probabilities),
            "pipeline": difference(torch.tensor([[scores[name] for name in names] for scores in by_name])),
            "labels": bool((np.asarray(test["shape"]) == rows["label"]).all()),
            "temperature": model.config.calibration_temperature,
            "metrics": {m["type"]: m["value"] for m in info.model_index[0]["results"][0]["metrics"]},
            "card": {key: info.card_data.get(key) for key in ("license", "base_model", "datasets", "library_name")},
        }
        scored[repo] = probabilities.tolist()
        if info.card_data.library_name == "timm":
            loaded = timm.create_model(f"hf-hub:{repo}", pretrained=True).eval()
            transform = timm.data.create_transform(**timm.data.resolve_model_data_config(loaded), is_training=False)
            with torch.no_grad():
                result["timm"] = difference(loaded(torch.stack([transform(image) for image in images])).softmax(-1))
        results[repo] = result

    del sys.modules["macs_hf"]  # the metric is a script over the installed package
    metric = evaluate.load("alice/ece")
    for repo, probabilities in scored.items():
        found = metric.compute(
            predictions=probabilities, references=test["shape"][:], probabilities=True, n_resamples=0
        )
        results[repo]["ece"] = found["ece"]
    return results
