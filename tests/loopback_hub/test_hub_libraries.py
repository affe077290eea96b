"""The loopback Hub driven by transformers, timm, datasets and evaluate; in one process, since imports dominate."""

from collections.abc import Iterator
from typing import Any

import pytest
from loopback_hub.client import run_client
from loopback_hub.server import ALICE, BOB, HubServer


Used = tuple[HubServer, dict[str, Any]]  # the Hub, and what the clients say of it

METRIC_SCRIPT = """
import datasets
import evaluate


class ShareRight(evaluate.Metric):
    def _info(self):
        integers = datasets.Value("int64")
        features = datasets.Features({"predictions": integers, "references": integers})
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references):
        return {"share_right": sum(p == r for p, r in zip(predictions, references)) / len(predictions)}
"""


def use_transformers(alice: str, bob: str) -> dict[str, Any]:
    import torch
    from huggingface_hub import create_branch, create_repo, snapshot_download, update_repo_settings
    from PIL import Image
    from transformers import (
        AutoImageProcessor,
        AutoModelForImageClassification,
        ResNetConfig,
        Trainer,
        TrainingArguments,
        ViTImageProcessor,
        pipeline,
    )

    torch.manual_seed(0)
    labels = {0: "cat", 1: "dog"}
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], id2label=labels)
    model = AutoModelForImageClassification.from_config(config).eval()
    processor = ViTImageProcessor(size={"height": 32, "width": 32})
    images = torch.rand(2, 3, 32, 32)
    data = [{"pixel_values": image, "labels": i} for i, image in enumerate(images)]

    def same(name: str, **kwargs: Any) -> bool:
        """Whether the Hub's model gives the logits of the one in memory."""
        loaded = AutoModelForImageClassification.from_pretrained(name, **kwargs)
        with torch.no_grad():
            return torch.equal(loaded(images).logits, model.eval()(images).logits)

    def train(name: str, model: torch.nn.Module, resume: str | None = None, **kwargs: Any) -> int:
        args = TrainingArguments(
            name, max_steps=2 + bool(resume), save_steps=1, report_to="none", use_cpu=True, disable_tqdm=True, **kwargs
        )
        trainer = Trainer(model, args, train_dataset=data, processing_class=processor)
        trainer.train(resume_from_checkpoint=resume)
        if args.push_to_hub:
            trainer.push_to_hub()
        return trainer.state.global_step

    def refusal(name: str, **kwargs: Any) -> str:
        try:
            return str(same(name, **kwargs))
        except OSError as error:
            return str(error)

    model.push_to_hub("alice/resnet")
    processor.push_to_hub("alice/resnet")
    model.push_to_hub("alice/hidden", private=True)
    result = {"public": same("alice/resnet"), "private": same("alice/hidden")}
    result["size"] = AutoImageProcessor.from_pretrained("alice/resnet").size["height"]
    result["bob sees public"] = refusal("alice/resnet", token=bob)
    result["bob sees private"] = refusal("alice/hidden", token=bob)
    result["missing"] = refusal("alice/never")
    model.push_to_hub("alice/gated")
    update_repo_settings("alice/gated", gated="auto")
    result["bob sees gated"] = refusal("alice/gated", token=bob)
    picture = Image.new("RGB", (40, 40), "red")
    scores = {p["label"]: p["score"] for p in pipeline("image-classification", model="alice/resnet")(picture)}
    pixels = processor(picture, return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        expected = model(pixels).logits.softmax(-1)[0].tolist()
    result["pipeline"] = [[scores[label], expected[i]] for i, label in labels.items()]

    train("every-save", model, push_to_hub=True, hub_token=alice)
    result["trained"] = same("alice/every-save")
    create_repo("alice/branched")
    create_branch("alice/branched", branch="trial/1")  # Trainer does not make it
    train("branched", model, push_to_hub=True, hub_strategy="end", hub_revision="trial/1")
    result["branch"] = same("alice/branched", revision="trial/1")
    train("checkpointed", model, push_to_hub=True, hub_strategy="checkpoint", hub_always_push=True)
    result["checkpointed"] = same("alice/checkpointed")
    folder = snapshot_download("alice/checkpointed", allow_patterns="last-checkpoint/*")
    fresh = AutoModelForImageClassification.from_config(config)
    result["steps after resuming"] = train("resumed", fresh, resume=f"{folder}/last-checkpoint")
    return result


def use_timm() -> dict[str, Any]:
    import timm
    import torch

    model = timm.create_model("resnet10t", num_classes=3).eval()
    images = torch.rand(2, 3, 32, 32)
    timm.models.push_to_hf_hub(model, "alice/timm", model_config={"num_classes": 3, "label_names": ["a", "b", "c"]})
    loaded = timm.create_model("hf-hub:alice/timm", pretrained=True).eval()
    with torch.no_grad():
        same = torch.equal(loaded(images), model(images))
    return {"same": same, "labels": loaded.pretrained_cfg["label_names"]}


def use_datasets() -> dict[str, Any]:
    import numpy as np
    from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, load_dataset

    features = Features({"img": Image(), "label": ClassLabel(names=["even", "odd"])})
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)

    def split(indices: range) -> Dataset:
        return Dataset.from_dict({"img": [pixels[i] for i in indices], "label": [i % 2 for i in indices]}, features)

    splits = DatasetDict(train=split(range(4)), test=split(range(4, 6)))
    splits.push_to_hub("alice/pictures")
    splits.push_to_hub("alice/pictures", config_name="second")
    loaded = load_dataset("alice/pictures")
    streamed = [np.asarray(row["img"]) for row in load_dataset("alice/pictures", split="train", streaming=True)]
    return {
        "rows": {name: len(part) for name, part in loaded.items()},
        "names": loaded["train"].features["label"].names,
        "labels": loaded["train"]["label"][:],
        "same": all(np.array_equal(row["img"], pixels[i]) for i, row in enumerate(loaded["train"])),
        "streamed": len(streamed) == 4 and all(map(np.array_equal, streamed, pixels[:4])),
        "second": len(load_dataset("alice/pictures", "second", split="test")),
    }


def use_evaluate(script: str) -> dict[str, float]:
    import evaluate
    from huggingface_hub import create_repo, upload_file

    create_repo("alice/share_right", repo_type="space", space_sdk="gradio")
    name = "share_right.py"
    upload_file(repo_id="alice/share_right", repo_type="space", path_or_fileobj=script.encode(), path_in_repo=name)
    return evaluate.load("alice/share_right").compute(predictions=[0, 1, 1, 0], references=[0, 1, 0, 0])


def use_libraries(alice: str, bob: str, script: str) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    return {
        "transformers": use_transformers(alice, bob),
        "timm": use_timm(),
        "datasets": use_datasets(),
        "evaluate": use_evaluate(script),
    }


@pytest.fixture(scope="module")
def used_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Used]:
    with HubServer(tmp_path_factory.mktemp("hub")) as hub:
        functions = (use_transformers, use_timm, use_datasets, use_evaluate, use_libraries)
        yield hub, run_client(hub, *functions, args=[ALICE, BOB, METRIC_SCRIPT])


def test_transformers_loads_what_it_pushed(used_hub: Used) -> None:
    result = used_hub[1]["transformers"]
    assert result["public"] and result["private"] and result["size"] == 32
    assert all(got == pytest.approx(expected, abs=1e-6) for got, expected in result["pipeline"])


def test_transformers_says_why_a_model_is_out_of_reach(used_hub: Used) -> None:
    result = used_hub[1]["transformers"]
    assert result["bob sees public"] == "True"
    for name in ("bob sees private", "missing"):
        assert "is not a valid model identifier" in result[name]
    assert "gated repo" in result["bob sees gated"]


def test_trainer_pushes_every_save(used_hub: Used) -> None:
    hub, results = used_hub
    assert results["transformers"]["trained"]
    titles = [commit.title for commit in hub.repo("alice/every-save").history()]
    assert titles[0] == "End of training" and titles[-1] == "initial commit" and len(titles) > 2
    assert {"README.md", "config.json", "model.safetensors"} <= set(hub.files("alice/every-save"))


def test_stored_bytes_show_a_leaked_token(used_hub: Used) -> None:
    """`training_args.bin` keeps `hub_token`: what `stored_bytes` is for."""
    hub, _ = used_hub
    for name, leaks in {"every-save": {"training_args.bin"}, "checkpointed": set()}.items():
        assert {path for path, content in hub.stored_bytes(f"alice/{name}") if ALICE.encode() in content} == leaks


def test_trainer_pushes_to_a_branch(used_hub: Used) -> None:
    hub, results = used_hub
    assert results["transformers"]["branch"]
    assert "model.safetensors" in hub.files("alice/branched", revision="trial/1")
    assert set(hub.files("alice/branched")) == {".gitattributes"}


def test_trainer_resumes_from_a_pushed_checkpoint(used_hub: Used) -> None:
    hub, results = used_hub
    assert results["transformers"]["checkpointed"] and results["transformers"]["steps after resuming"] == 3
    assert "last-checkpoint/optimizer.pt" in hub.files("alice/checkpointed")


def test_timm_loads_what_it_pushed(used_hub: Used) -> None:
    assert used_hub[1]["timm"] == {"same": True, "labels": ["a", "b", "c"]}


def test_datasets_loads_and_streams_what_it_pushed(used_hub: Used) -> None:
    hub, results = used_hub
    assert results["datasets"] == {
        "rows": {"train": 4, "test": 2},
        "names": ["even", "odd"],
        "labels": [0, 1, 0, 1],
        "same": True,
        "streamed": True,
        "second": 2,
    }
    assert any(request.status == 206 for request in hub.requests)


def test_evaluate_loads_a_metric_space(used_hub: Used) -> None:
    assert used_hub[1]["evaluate"] == {"share_right": 0.75}


def test_every_request_is_served(used_hub: Used) -> None:
    """A 404 of an unknown route is easily taken for a missing file."""
    hub, _ = used_hub
    assert [request for request in hub.requests if request.route is None] == []
