"""Statements of the loop are evaluated again only if nobody can tell: else what they gave is named as it came."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader

ONES, ZEROS = torch.ones(2, 4), torch.zeros(2, 1)


@pytest.fixture
def model():
    return nn.Linear(4, 1)


@pytest.fixture
def optimizer(model):
    return SGD(model.parameters(), lr=0.1)


def test_a_value_made_without_a_graph_is_followed_to_its_line(watching, model, optimizer, line):
    run = watching(model, optimizer)
    y = ZEROS
    target = y.log()  # <- target
    loss = (model(ONES) - target).square().mean()
    loss.backward()
    optimizer.step()
    assert (run.origin.where.op, run.origin.where.line) == ("aten.log", line("target"))


def test_into_a_function_of_the_users(watching, model, optimizer, line):
    def prepared(y):
        parts = []
        for one in y:
            parts.append(one.log())  # <- prepared
        return torch.stack(parts)

    run = watching(model, optimizer)
    y = ZEROS
    loss = (model(ONES) - prepared(y)).square().mean()
    loss.backward()
    optimizer.step()
    assert (run.origin.where.op, run.origin.where.line) == ("aten.log", line("prepared"))


class Source:
    """Has methods that tensors have, too, but counts."""

    def __init__(self):
        self.taken = 0

    def take(self, count):
        self.taken += count
        return ZEROS.log()

    def __getitem__(self, at):
        self.taken += 1
        return ZEROS.log()


def test_a_method_of_an_object_of_the_users_is_called_once(watching, model, optimizer):
    run, source = watching(model, optimizer), Source()
    target = source.take(1)
    loss = (model(ONES) - target).square().mean()
    loss.backward()
    optimizer.step()
    assert source.taken == 1
    assert run.watch.findings


def test_an_object_of_the_users_is_indexed_once(watching, model, optimizer):
    run, source = watching(model, optimizer), Source()
    target = source[0]
    loss = (model(ONES) - target).square().mean()
    loss.backward()
    optimizer.step()
    assert source.taken == 1
    assert run.watch.findings


def test_a_stream_is_not_used_up(watching, model, optimizer):
    def numbers():
        for at in range(10):
            yield torch.full((2, 1), float("nan") if at < 3 else 1.0)

    run, stream = watching(model, optimizer), numbers()
    target = sum(y for y, _ in zip(stream, range(3), strict=False))
    loss = (model(ONES) - target).square().mean()
    loss.backward()
    optimizer.step()
    assert len(list(stream)) == 6  # zip takes one more than it gives
    assert run.watch.findings


def test_a_loader_is_not_gone_through_again(watching, model, optimizer):
    class Data(torch.utils.data.Dataset):
        read = 0

        def __len__(self):
            return 4

        def __getitem__(self, at):
            Data.read += 1
            return torch.tensor([float("nan")])

    run, loader = watching(model, optimizer), DataLoader(Data(), batch_size=2)
    target = sum(y for y in loader)
    loss = (model(ONES) - target).square().mean()
    loss.backward()
    optimizer.step()
    assert Data.read == 4
    assert run.watch.findings


class Meter:
    def __init__(self):
        self.seen = []

    def update(self, x):
        self.seen.append(x.mean().item())

    def add(self, x):
        self.seen.append(x.mean().item())


def test_an_object_handed_to_a_function_of_the_users_is_told_once(watching, model, optimizer):
    def loss_of(out, y, meter, *, second):
        meter.update(out)
        second.add(out)
        return (out - y.log()).square().mean()

    run, meter, second = watching(model, optimizer), Meter(), Meter()
    out, y = model(ONES), ZEROS
    loss = loss_of(out, y, meter, second=second)
    loss.backward()
    optimizer.step()
    assert (len(meter.seen), len(second.seen)) == (1, 1)
    assert run.watch.findings


def test_a_list_handed_to_a_function_of_the_users_grows_once(watching, model, optimizer):
    def loss_of(out, y, losses):
        losses.append(out.mean().item())
        return (out - y.log()).square().mean()

    run, losses = watching(model, optimizer), []
    out, y = model(ONES), ZEROS
    loss = loss_of(out, y, losses)
    loss.backward()
    optimizer.step()
    assert len(losses) == 1
    assert run.watch.findings


def test_random_numbers_are_as_they_were(watching, model, optimizer):
    run = watching(model, optimizer)
    y = ZEROS
    loss = (model(ONES) - y.log() + torch.rand(2, 1)).square().mean()
    loss.backward()
    state = torch.get_rng_state()
    optimizer.step()
    assert run.watch.findings
    assert torch.equal(state, torch.get_rng_state())


def test_what_the_loop_bound_stays_bound(watching, model, optimizer):
    run = watching(model, optimizer)
    y = ZEROS.clone()
    target = y.log()
    out = model(ONES)
    loss = (out - target).square().mean()
    bound = [y, target, out, loss]
    before = [(id(one), one._version, one.requires_grad) for one in bound]
    loss.backward()
    optimizer.step()
    assert run.origin
    assert before == [(id(one), one._version, one.requires_grad) for one in (y, target, out, loss)]


def test_a_name_that_is_bound_anew_is_not_its_own_cause(watching, model, optimizer, line):
    run = watching(model, optimizer)
    out = model(ONES)
    out = torch.sqrt(out - 100)  # <- anew
    loss = out.square().mean()
    loss.backward()
    optimizer.step()
    assert run.origin.id == "nonfinite-loss"
    assert (run.origin.where.op, run.origin.where.line) == ("aten.sqrt", line("anew"))


def test_a_target_that_is_prepared_under_one_name_is_followed_to_that_line_and_no_further(
    watching, model, optimizer, line
):
    run = watching(model, optimizer)
    y = ZEROS
    y = y.log()  # <- prepared under one name
    loss = (model(ONES) - y).square().mean()
    loss.backward()
    optimizer.step()
    assert f"unsure: `y` was last assigned at line {line('prepared under one name')}" in run.origin.message
