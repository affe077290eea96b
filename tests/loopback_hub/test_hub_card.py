"""What the loopback Hub refuses in the metadata of a card."""

import pytest
from loopback_hub.card import card_errors, read_metadata


@pytest.mark.parametrize(
    ("metadata", "complaint"),
    [
        ("license: apache-2.0\nbase_model: [timm/resnet34, a/b]\ndatasets: [cifar10]", None),
        ("", None),
        ("- a\n- b", "mapping"),
        ("a: [", "YAML"),
        ("base_model: https://huggingface.co/a/b", "no repository id"),
        ("datasets: [3]", "list of strings"),
        (
            "model-index: [{name: m, results: [{task: {type: t}, dataset: {type: d, name: n}, metrics: []}]}]",
            "metrics",
        ),
        (
            "model-index: [{name: m, results: [{task: {type: t}, dataset: {type: d, name: n},"
            " metrics: [{type: ece, value: .nan}]}]}]",
            "finite",
        ),
        ("model-index: [{results: []}]", "name"),
        ("model-index: [{name: m}]", "list of mappings"),
    ],
)
def test_card_errors(metadata: str, complaint: str | None) -> None:
    errors = card_errors(f"---\n{metadata}\n---\ntext")
    assert (not errors) if complaint is None else complaint in "".join(errors)


@pytest.mark.parametrize(
    ("content", "metadata"),
    [
        ("no metadata\n---\na: 1\n---\n", {}),
        ("---\r\na: 1\r\n---\r\ntext", {"a": 1}),
        ("---\na: 1\n---", {"a": 1}),
        ("---\na: 1\n---\ntext\n---\nb: 2\n---\n", {"a": 1}),
    ],
)
def test_read_metadata(content: str, metadata: dict[str, int]) -> None:
    assert read_metadata(content) == metadata
