"""Before the run: each check on something sick and something healthy, and everything is put back."""

import copy
import io
import json
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import seismograd as sg
from seismograd import patches
from seismograd.preflight.checks import CHECKS
from seismograd.preflight.rehearsal import Rehearsal

AGAIN = {"samples don't mix", "two evaluations agree", "train and eval mode"}
"""They call the model again on the recorded input, which has to be as it was."""

EVERY = {check.name for check in CHECKS}


def mlp(*, outputs=3, last=None):
    torch.manual_seed(0)
    layers = [nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, outputs)]
    return nn.Sequential(*layers, *([] if last is None else [last]))


def batch(classes=3):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(32, 6, generator=generator), torch.randint(0, classes, (32,), generator=generator)


def ids(result):
    return {finding.id for finding in result.findings}


def test_a_healthy_model():
    model = mlp()
    loader = DataLoader(TensorDataset(*batch()), batch_size=8)
    result = sg.preflight(model, batch(), nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), 1e-3), loader)
    assert result.ok
    assert result
    assert ids(result) <= {"data-starvation"}
    assert {done.name for done in result.checks} == EVERY
    assert set(result.left_out) == {"no look-ahead"}
    assert result.figures["first_loss"]["chance"] == pytest.approx(np.log(3))
    assert result.figures["learning_rate"]["interval"][0] < 1e-2
    memory = result.figures["memory"]
    assert memory["parameters"] == 4 * sum(p.numel() for p in model.parameters())
    assert memory["fixed"] == 4 * memory["parameters"]
    assert memory["activations"] >= 32 * 16 * 4
    assert memory["largest_batch"] > 32
    assert json.loads(json.dumps(result.report(), allow_nan=False))["status"] == "healthy"
    assert "samples don't mix" in str(result)
    assert "no look-ahead" in repr(result)


class Everything(nn.Module):
    """Whatever a pass can change: statistics, buffers, attributes, lists, generators, its input."""

    def __init__(self, changes_input):
        super().__init__()
        self.changes_input = changes_input
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
        self.register_buffer("calls", torch.zeros(()))
        self.count, self.kept = 0, []
        self.own = torch.Generator().manual_seed(4)

    def forward(self, x):
        self.calls += 1
        self.count += 1
        self.kept.append(self.count)
        x = x.mul_(1.01) if self.changes_input else x * 1.01
        noise = random.random() + float(np.random.rand()) + float(torch.rand((), generator=self.own))
        return self.body(x) + 0 * noise


def state(model, optimizer, loader, data):
    return copy.deepcopy(
        {
            "model": model.state_dict(),
            "gradients": [p.grad for p in model.parameters()],
            "needs": [p.requires_grad for p in model.parameters()],
            "flags": [module.training for module in model.modules()],
            "attributes": [model.count, model.kept, model.own.get_state()],
            "optimizer": optimizer.state_dict(),
            "loader": loader.generator.get_state(),
            "data": data,
            "random": [random.getstate(), str(np.random.get_state()), torch.get_rng_state()],
        }
    )


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize(("mode", "changes_input"), [(True, False), (False, True)])
def test_everything_is_put_back(mode, changes_input):
    torch.manual_seed(0)
    model = Everything(changes_input)
    optimizer = torch.optim.Adam(
        [{"params": model.body[0].parameters(), "lr": 1e-2}, {"params": model.body[1:].parameters()}]
    )
    F.cross_entropy(model(batch()[0]), batch()[1]).backward()
    optimizer.step()
    model.train(mode)
    model.body[1].eval()
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader(TensorDataset(*batch()), batch_size=8, shuffle=True, generator=generator)
    data = batch()
    held = [id(one) for one in (*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters()))]
    before = state(model, optimizer, loader, data)
    result = sg.preflight(model, data, nn.CrossEntropyLoss(), optimizer, loader)
    assert set(result.left_out) == {"no look-ahead", *(AGAIN if changes_input else ())}
    after = state(model, optimizer, loader, data)
    assert [name for name in before if not same(before[name], after[name])] == []
    assert held == [id(one) for one in (*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters()))]
    assert patches.listeners() == ()


def test_a_watch_that_is_open_hears_nothing_of_it():
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())
    with sg.watch(model, optimizer, sinks=[]) as watch:
        sg.preflight(model, batch(), nn.CrossEntropyLoss(), optimizer)
        assert watch.report()["run"]["steps"] == 0
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(batch()[0]), batch()[1]).backward()
            optimizer.step()
    assert watch.report()["run"]["steps"] == 3


@pytest.mark.parametrize(
    ("model", "data", "loss_fn", "expected"),
    [
        (mlp(last=nn.Softmax(1)), batch(), nn.CrossEntropyLoss(), "double-softmax"),
        (mlp(outputs=1), (batch()[0], torch.randn(32)), nn.MSELoss(), "broadcast-loss"),
        (mlp(outputs=2), batch(), nn.CrossEntropyLoss(), "label-out-of-range"),
        (mlp(), (batch()[0], batch()[1].float()), nn.CrossEntropyLoss(), "loss-input-mismatch"),
        (mlp(), batch(), lambda o, y: F.cross_entropy(o, y).item(), "detached-loss"),
        (mlp(), batch(), lambda o, y: F.cross_entropy(o.detach(), y), "detached-loss"),
        (mlp(), batch(), nn.CrossEntropyLoss(reduction="none"), "loss-input-mismatch"),
        (mlp(), (batch()[0] / 0, batch()[1]), nn.CrossEntropyLoss(), "nonfinite-input"),
    ],
)
def test_what_does_not_fit(model, data, loss_fn, expected):
    result = sg.preflight(model, data, loss_fn)
    assert expected in ids(result)
    assert not result.ok


def test_an_exception_in_forward_is_a_finding_with_its_line():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, 16), nn.Linear(8, 3)

        def forward(self, x):
            return self.second(self.first(x))  # here

    result = sg.preflight(Broken(), batch(), nn.CrossEntropyLoss())
    (finding,) = result.findings
    assert "shapes cannot be multiplied" in finding.message
    assert finding.where.module == "second"
    assert finding.where.code.endswith("# here")
    assert set(result.left_out) == EVERY - {"works"}
    assert "13 more were left out: the forward does not work" in str(result)


def test_a_first_loss_far_beyond_chance():
    model = mlp()
    with torch.no_grad():
        model[2].weight.mul_(100)
    assert "bad-initialization" in ids(sg.preflight(model, batch(), nn.CrossEntropyLoss()))


def test_units_that_start_equal():
    model = nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)
    )
    nn.init.constant_(model[2].weight, 0.1)
    nn.init.zeros_(model[2].bias)
    (found,) = [one for one in sg.preflight(model, batch(), nn.CrossEntropyLoss()).findings if one.severity != "info"]
    assert (found.id, found.where.module) == ("bad-initialization", "2")


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.unused = nn.Linear(6, 16), nn.Linear(16, 3), nn.Linear(2, 2)
        self.hidden = [nn.Linear(16, 16)]

    def forward(self, x):
        return self.two(F.relu(self.hidden[0](F.relu(self.one(x)))))


def test_parameters_and_who_holds_them():
    model = Parts()
    optimizer = torch.optim.SGD(model.one.parameters(), lr=0.1)
    result = sg.preflight(model, batch(), nn.CrossEntropyLoss(), optimizer)
    assert {"unused-parameter", "unoptimized-parameter", "unregistered-parameter"} <= ids(result)


def test_it_is_a_copy_that_is_trained(monkeypatch):
    model = nn.Linear(6, 3)
    trained = []
    monkeypatch.setattr(
        "seismograd.preflight.trial.rehearse",
        lambda one, *rest: trained.append(one) or Rehearsal([], [], set(), None, 0.0),
    )
    sg.preflight(model, batch(), nn.CrossEntropyLoss())
    assert trained
    assert trained[0] is not model
    other = nn.Linear(6, 3)
    sg.preflight(model, batch(), lambda net, data: F.cross_entropy(net(data[0]) + other(data[0]), data[1]))
    assert trained[-1] is model, "a copy would share the other layer"


def test_samples_that_mix_and_positions_that_see_ahead():
    class Mixes(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.GRU(6, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.rnn(x)[0][:, -1])

    x = torch.randn(12, 5, 6)
    result = sg.preflight(Mixes(), (x, torch.randint(0, 3, (12,))), nn.CrossEntropyLoss())
    assert "batch-mixing" in ids(result)

    class Sees(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(9, 8)
            self.rnn, self.head = nn.GRU(8, 8, batch_first=True, bidirectional=True), nn.Linear(16, 9)

        def forward(self, x):
            return self.head(self.rnn(self.embed(x))[0]).transpose(1, 2)

    tokens = torch.randint(0, 9, (6, 11))
    result = sg.preflight(Sees(), (tokens[:, :-1], tokens[:, 1:]), nn.CrossEntropyLoss())
    assert "target-leak" in ids(result)
    assert result.left_out.keys() == {"learning rate", "the loader keeps up"}


def test_dropout_that_is_never_off():
    class Drops(nn.Module):
        def __init__(self, training=None):
            super().__init__()
            self.layer, self.head, self.always = nn.Linear(6, 16), nn.Linear(16, 3), training is None

        def forward(self, x):
            return self.head(F.dropout(F.relu(self.layer(x)), 0.5, training=self.always or self.training))

    assert "train-mode-evaluation" in ids(sg.preflight(Drops(), batch(), nn.CrossEntropyLoss()))
    assert sg.preflight(Drops(False), batch(), nn.CrossEntropyLoss()).ok


@pytest.mark.parametrize(("lr", "expected"), [(1e4, {"lr-too-high"}), (1e-7, {"lr-too-low"}), (0.1, set())])
def test_the_learning_rate(lr, expected):
    model = mlp()
    result = sg.preflight(model, batch(), nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr))
    assert ids(result) & {"lr-too-high", "lr-too-low"} == expected
    if lr > 1:
        assert result.findings[0].id == "lr-too-high"  # the rest follows from it


def test_a_batch_that_cannot_be_learned():
    model = mlp()
    with torch.no_grad():
        model[0].bias.fill_(-100)  # all units are dead
        model[2].bias.zero_()
    model[2].bias.requires_grad_(False)
    assert "loss-plateau" in ids(sg.preflight(model, batch(), nn.CrossEntropyLoss()))


def test_a_loader_that_is_slow():
    from time import sleep

    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 32

        def __getitem__(self, at):
            sleep(0.01)
            return at

    model = mlp()
    result = sg.preflight(model, batch(), nn.CrossEntropyLoss(), loader=DataLoader(Slow(), batch_size=8))
    (found,) = [one for one in result.findings if one.id == "data-starvation"]
    assert found.severity == "info"
    one_way = sg.preflight(model, batch(), nn.CrossEntropyLoss(), loader=iter([batch()]))
    assert "iterator" in one_way.left_out["the loader keeps up"]


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x, scale=1.0, labels=None):
        logits = self.layer(x) * scale
        return logits if labels is None else {"loss": F.cross_entropy(logits, labels), "logits": logits}


@pytest.mark.parametrize(
    ("make", "loss_fn"),
    [
        (lambda x, y: {"x": x, "labels": y}, None),
        (lambda x, y: {"x": x, "labels": y}, nn.CrossEntropyLoss()),
        (lambda x, y: ((x, torch.ones(())), y), nn.CrossEntropyLoss()),
        (
            lambda x, y: {"nested": [x, {"y": y}]},
            lambda model, b: F.cross_entropy(model(b["nested"][0]), b["nested"][1]["y"]),
        ),
        (lambda x, y: x, lambda output: output.square().mean()),
    ],
)
def test_batches_of_any_structure(make, loss_fn):
    result = sg.preflight(Named(), make(*batch()), loss_fn)
    assert result.ok
    assert "works" not in result.left_out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((nn.Linear, batch(), F.cross_entropy), "nn.Module"),
        ((mlp(), [1, 2], F.cross_entropy), "without a tensor"),
        ((mlp(), batch(), "mse"), "loss_fn"),
        ((mlp(), batch(), nn.CrossEntropyLoss), "instance"),
        ((mlp(), batch(), F.cross_entropy, "adam"), "optimizer"),
        ((mlp(), batch(), F.cross_entropy, None, 3), "loader"),
    ],
)
def test_what_is_no_preflight(arguments, word):
    with pytest.raises(TypeError, match=word):
        sg.preflight(*arguments)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_shown_on_a_terminal(monkeypatch, capsys):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    sg.preflight(mlp(), batch(), nn.CrossEntropyLoss())
    assert f"preflight 1/{len(CHECKS)}: works" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")
    assert capsys.readouterr().out == ""


def test_every_check_says_what_it_looks_at():
    assert len(EVERY) == len(CHECKS) >= 14
    for check in CHECKS:
        assert len(type(check).__doc__) > 80
