"""A model that FSDP2 divides, in one process: what it computes with."""

import copy
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from macs_hf.sharding import gathered_weights, unrounded_weights


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.skipif(not hasattr(FSDPModule, "set_reshard_after_forward"), reason="refused with this torch")
def test_weights_in_16_bits_are_left_out_for_a_while(group: None) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    model, images = copy.deepcopy(plain), torch.randn(5, 4)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(model[0], mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):  # before the first forward pass, and between steps
        with torch.no_grad():
            expected = plain(images)
            with unrounded_weights(model):
                assert torch.equal(model(images), expected)
                with gathered_weights(model):
                    assert torch.equal(model(images), expected)
                assert torch.equal(model(images), expected)
        logits = model(images)
        assert logits.dtype == torch.bfloat16
        assert 1e-4 < (logits - expected).abs().max() < 1e-2
        logits.float().square().mean().backward()
        assert model[0].weight.grad.dtype == torch.float32
        optimizer.step()
        optimizer.zero_grad()
        weights = {name: weight.full_tensor() for name, weight in model.state_dict().items()}
        assert not torch.equal(weights["0.weight"], plain[0].weight)
        plain.load_state_dict(weights)


def test_a_whole_model_is_left_as_it_is() -> None:
    model = nn.Linear(4, 3)
    with unrounded_weights(model), torch.no_grad():
        assert model(torch.ones(1, 4)).dtype == torch.float32
