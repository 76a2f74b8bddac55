"""What has to be alike on which ranks: told by the wrappers, and of nothing that they do not hold."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from seismograd.onlookers.ranks.wrapping import Wrapping
from seismograd.probes.watched import Watched
from seismograd.run.discovery import discover, leaves_of

fully_shard = pytest.importorskip("torch.distributed.fsdp", reason="FSDP2").__dict__.get("fully_shard")
fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")


@pytest.fixture
def four():
    """Four ranks, of which three are not there: collectives do nothing."""
    dist.init_process_group("fake", rank=0, world_size=4, store=fake.FakeStore())
    yield
    dist.destroy_process_group()


@pytest.fixture
def alone():
    """One rank, whose collectives are real."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield
    dist.destroy_process_group()


def wrapping(**models: nn.Module) -> Wrapping:
    found = Wrapping(Watched(models, None))
    found.search()
    found.refresh()
    return found


def test_both_wrappers_of_a_gan_hold_what_is_to_be_alike(four):
    one, other = (DistributedDataParallel(nn.Linear(2, 2)) for _ in range(2))
    found = wrapping(one=one, other=other)
    assert found.kind == "ddp"
    assert len(found.names) == 4


def test_ddps_error_is_read_by_number(four):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    found = wrapping(model=DistributedDataParallel(model))
    error = "... \nParameter indices which did not receive grad for rank 1: 1 2\n In addition, ..."
    assert found.without_gradient(error) == (["1.bias", "2.weight"], 0)
    model[2] = nn.Linear(2, 2)
    assert found.without_gradient(error) == (["1.bias"], 1)
    assert found.without_gradient("Expected to have finished reduction") == ([], 0)


def test_what_no_wrapper_holds_may_be_each_ranks_own(four):
    found = wrapping(dense=DistributedDataParallel(nn.Linear(2, 2)), table=nn.Embedding(8, 2))
    assert found.kind == "ddp"
    assert not any("table" in name for name in found.names)
    assert len(found.names) == 2


def test_wrappers_over_other_ranks_are_not_compared(four):
    pair = dist.new_group([0, 1])
    one = DistributedDataParallel(nn.Linear(2, 2))
    other = DistributedDataParallel(nn.Linear(2, 2), process_group=pair)
    assert wrapping(one=one).group == ""
    assert wrapping(other=other).group == "0+2"
    assert wrapping(one=one, other=other).kind == "mixed"


@pytest.mark.skipif(fully_shard is None, reason="an older torch")
def test_shards_of_a_model_that_is_split_itself_are_not_compared(four):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8))
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"])
    assert wrapping(model=model).kind == "mixed"


@pytest.mark.skipif(fully_shard is None, reason="an older torch")
@pytest.mark.parametrize("shape", [(4,), (2, 2)])
def test_shards_are_of_one_model_otherwise(four, shape):
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
    own = nn.Parameter(torch.zeros(3))
    model.register_parameter("own", own)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("copies", "shards")[-len(shape) :])
    fully_shard(model, mesh=mesh, ignored_params={own})
    found = wrapping(model=model)
    assert found.kind == "fsdp"
    assert found.names == []


@pytest.mark.skipif(fully_shard is None, reason="an older torch")
def test_a_training_met_in_the_middle_of_a_pass_is_known_by_its_shards(alone):
    """Then the gathered copies stand in the model and are the leaves; their memory is freed after the pass."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3))
    fully_shard(model[0])
    fully_shard(model)
    shards = list(model.parameters())
    optimizer = torch.optim.SGD(shards, lr=0.1)
    loss = model(torch.ones(2, 8)).sum()
    assert any(not hasattr(parameter, "placements") for parameter in model.parameters())

    found = discover(leaves_of([loss]))
    assert (list(found.models.values()), found.optimizers, found.loose) == ([model], [optimizer], [])
    assert {id(leaf) for leaf in leaves_of([loss])} <= {id(parameter) for parameter in found.parameters()}
    roster = Watched(found.models, found.optimizers).roster
    assert roster.names == ("0.weight", "0.bias", "1.weight", "1.bias")
    assert all(one is other for one, other in zip(roster.parameters, shards, strict=True))


def test_ranks_that_have_parted_are_let_be():
    model = nn.Linear(2, 2)
    found = Wrapping(Watched({"model": model}, None))
    found.refresh()  # the group is gone by now
    assert found.kind == "mixed"
