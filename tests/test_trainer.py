"""What must hold for a trainer that replaces `Trainer`: the same numbers where nothing is added, and right ones elsewhere."""

from pathlib import Path

import pytest
from tiny import Images, arguments, build, logged, same_weights, trainer
from transformers import Trainer

from macs_hf import METHODS


PLAIN = METHODS["ce"]


@pytest.mark.parametrize("name", ["vit", "resnet", "timm"])
def test_zero_weights_are_plain_trainer_bit_for_bit(name: str, tmp_path: Path) -> None:
    ours = trainer(tmp_path, build(name), **PLAIN)
    plain = Trainer(model=build(name), args=arguments(tmp_path, **PLAIN), train_dataset=Images())
    ours.train()
    plain.train()
    assert same_weights(ours.model, plain.model)
    assert logged(ours, "loss") == logged(plain, "loss")
    assert logged(ours, "grad_norm") == logged(plain, "grad_norm")
