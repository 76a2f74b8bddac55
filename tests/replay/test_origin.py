"""Where the first value that is not finite was made: one test for each pattern, with its module, op and line."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

GOOD, BAD = torch.linspace(0.5, 2.0, 24).reshape(6, 4), torch.linspace(0.5, 2.0, 24).reshape(6, 4)
BAD[3, 1] = 0.0


class Step(nn.Module):
    """Two layers with a body of the test's own between them, whose weight is 1."""

    def __init__(self, body, width=4):
        super().__init__()
        self.scale = Scale(body, width)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.scale(x))


class Scale(nn.Module):
    def __init__(self, body, width=4):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.body = body

    def forward(self, x):
        return self.body(x * self.weight)


def log(h):
    return torch.log(h)  # <- log


def divide(h):
    return 1.0 / h  # <- divide


def exp(h):
    return torch.exp(h * 100)  # <- exp


def softmax_by_hand(h):
    e = torch.exp(h * 100)  # <- softmax
    return e / e.sum(-1, keepdim=True)


def root_of_negative(h):
    return torch.sqrt(h - 0.1)  # <- root


def variance_of_one(h):
    return h - h[:1].var(0)  # <- var


def fully_masked(h):
    mask = torch.zeros(len(h), 4, dtype=torch.bool)
    if (h == 0).any():
        mask[3] = True
    return torch.softmax(h.masked_fill(mask, -math.inf), -1)  # <- masked


def halved(h):
    return (h.half() * 60000).float()  # <- half


def inf_then_nan(h):
    e = 1 / h  # <- first
    return e - e


def uninitialised(h):
    out = h.new_empty(h.shape)  # <- empty
    out[:3] = h[:3]
    return out * h


IN_FORWARD = [
    (log, "aten.log", -math.inf, "log"),
    (divide, "aten.reciprocal", math.inf, "divide"),
    (exp, "aten.exp", math.inf, "exp"),
    (softmax_by_hand, "aten.exp", math.inf, "softmax"),
    (root_of_negative, "aten.sqrt", math.nan, "root"),
    (variance_of_one, "aten.var", math.nan, "var"),
    (fully_masked, "aten._softmax", math.nan, "masked"),
    (halved, "aten.mul", math.inf, "half"),
    (inf_then_nan, "aten.reciprocal", math.inf, "first"),
]


@pytest.mark.filterwarnings("ignore:var.*degrees of freedom:UserWarning")
@pytest.mark.parametrize("case", IN_FORWARD, ids=[case[-1] for case in IN_FORWARD])
def test_an_op_in_the_forward_pass(diagnose, line, case):
    body, op, value, mark = case
    model = Step(body)
    found = diagnose(model, lambda x: model(x).square().mean(), [BAD])
    assert (found.id, found.where.phase) == ("nonfinite-activation", "forward")
    assert (found.where.module, found.where.op, found.where.line) == ("scale", op, line(mark))
    assert found.where.file.endswith("test_origin.py")
    assert found.where.code.endswith(f"# <- {mark}")
    assert found.evidence["value"] == pytest.approx(value, nan_ok=True)
    assert found.evidence.get("because") is None
    assert found.evidence.get("sure", True)


@pytest.mark.parametrize("body", [log, divide, root_of_negative, fully_masked])
def test_the_step_before_was_sound(diagnose, body):
    model = Step(body)
    assert diagnose(model, lambda x: model(x).square().mean(), [GOOD, GOOD, BAD, BAD]).step == 2


def test_evidence_has_counts_places_and_ranges(diagnose):
    model = Step(log)
    found = diagnose(model, lambda x: model(x).square().mean(), [BAD])
    evidence = found.evidence
    assert (evidence["bad"], evidence["size"], evidence["shape"]) == (1, 24, [6, 4])
    assert evidence["index"] == [[3, 1]]
    assert evidence["first_bad"].startswith("sample 3, feature 1")
    assert evidence["inputs"][0]["zeros"] == 1
    assert evidence["inputs"][0]["low"] == 0.0
    assert evidence["inputs"][0]["high"] == pytest.approx(2.0)
    start, end = evidence["columns"]
    assert found.where.code[start:end] == "torch.log(h)"
    assert "-Inf" in found.message


def test_what_follows_is_linked_to_the_origin(watching):
    model = Step(log)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    model(BAD).square().mean().backward()
    optimizer.step()
    others = [one for one in run.watch.findings if one.severity.value == "critical" and one is not run.origin]
    assert {one.id for one in others} >= {"nonfinite-loss", "nonfinite-gradient"}
    assert all(one.evidence["because"] for one in others)


# -- backward --------------------------------------------------------------------------------------------------------


def root(h):
    return torch.sqrt(h)  # <- sqrt


def norm(h):
    return h / (1.0 + (h * h).sum(-1, keepdim=True).sqrt())  # <- norm


def hidden_by_where(h):
    return torch.where(h > 0, torch.log(h), torch.zeros(()))  # <- where


def distance(h):
    return torch.acos(h / 2)  # <- acos


IN_BACKWARD = [
    (root, "aten.sqrt", "sqrt"),
    (norm, "aten.sqrt", "norm"),
    (hidden_by_where, "aten.log", "where"),
    (distance, "aten.acos", "acos"),
]


@pytest.mark.parametrize(("body", "op", "mark"), IN_BACKWARD, ids=[case[-1] for case in IN_BACKWARD])
def test_an_op_in_the_backward_pass(diagnose, line, body, op, mark):
    model = Step(body)
    x = BAD.clone()
    x[3] = 0.0
    found = diagnose(model, lambda x: model(x).square().mean(), [x])
    assert (found.id, found.where.phase) == ("nonfinite-gradient", "backward")
    assert (found.where.module, found.where.op, found.where.line) == ("scale", op, line(mark))


def test_in_backward_the_gradient_that_arrived_is_told(diagnose):
    model = Step(root)
    evidence = diagnose(model, lambda x: model(x).square().mean(), [BAD]).evidence
    assert {one["name"] for one in evidence["inputs"]} >= {"grad"}
    assert evidence["pattern"] == "infinite-derivative"
    assert evidence["forward_op"] == "aten.sqrt"


def test_zero_times_infinity_behind_where_is_known_as_such(diagnose):
    model = Step(hidden_by_where)
    assert diagnose(model, lambda x: model(x).square().mean(), [BAD]).evidence["pattern"] == "zero-times-infinity"


# -- what is no fault ------------------------------------------------------------------------------------------------


def masked_in_part(h):
    mask = torch.zeros(len(h), 4, dtype=torch.bool)
    mask[:, 2] = True
    return torch.softmax(h.masked_fill(mask, -math.inf), -1)


def masked_by_addition(h):
    mask = torch.full((4, 4), -math.inf).triu(1)[1]
    return torch.softmax(h + mask, -1)


def overwritten(h):
    out = torch.empty_like(h)
    out[:] = h
    torch.empty(h.shape)
    return out


def discarded(h):
    infinite = 1 / torch.zeros(4)
    return torch.where(torch.ones(4, dtype=torch.bool), h, infinite)


@pytest.mark.parametrize("harmless", [masked_in_part, masked_by_addition, overwritten, discarded])
def test_what_never_reaches_the_loss_is_not_accused(diagnose, line, harmless):
    model = Step(lambda h: log(harmless(h) * (h > 0)))
    found = diagnose(model, lambda x: model(x).square().mean(), [BAD])
    assert (found.where.op, found.where.line) == ("aten.log", line("log"))


@pytest.mark.parametrize("harmless", [masked_in_part, masked_by_addition, overwritten, discarded])
def test_what_never_reaches_the_loss_is_not_accused_of_a_bad_gradient(diagnose, line, harmless):
    model = Step(lambda h: root(harmless(h) * (h > 0)))
    found = diagnose(model, lambda x: model(x).square().mean(), [BAD])
    assert (found.where.op, found.where.line) == ("aten.sqrt", line("sqrt"))


def test_memory_that_nobody_wrote_is_told_even_if_it_happens_to_hold_zeros(diagnose, line):
    model = Step(lambda h: log(uninitialised(h)) * 0 + divide(h - h))
    found = diagnose(model, lambda x: model(x).square().mean(), [GOOD])
    assert found.where.op == "aten.new_empty"
    assert found.where.line == line("empty")


# -- the data --------------------------------------------------------------------------------------------------------


def test_nan_in_the_data_is_the_batchs_fault(diagnose, line):
    model = Step(log)
    x = GOOD.clone()
    x[4, 2] = x[5, 2] = math.nan

    def loss(x):
        return model(x).square().mean()  # <- call

    found = diagnose(model, loss, [GOOD, x])
    assert (found.id, found.where.phase, found.where.line) == ("nonfinite-input", "input", line("call"))
    assert (found.evidence["bad"], found.evidence["index"]) == (2, [[4, 2], [5, 2]])
    assert (found.evidence["samples"], found.evidence["of_samples"]) == (2, 6)
    assert found.evidence["argument"] == "args[0]"
    assert "sample 4, feature 2" in found.message


def test_bad_data_by_keyword_has_its_name(diagnose):
    class Model(nn.Linear):
        def forward(self, batch, *, mask=None):
            return super().forward(batch["pixels"])

    model = Model(4, 1)
    bad = {"pixels": BAD / BAD, "ids": torch.arange(6)}
    found = diagnose(model, lambda x: model(batch=x).mean(), [{"pixels": GOOD}, bad])
    assert found.id == "nonfinite-input"
    assert "pixels" in found.evidence["argument"]
    assert "batch" in found.evidence["argument"]


@pytest.mark.parametrize("as_module", [False, True])
def test_nan_in_the_target(diagnose, line, as_module):
    model, criterion = nn.Linear(4, 1), nn.MSELoss()
    y = torch.ones(6, 1)
    y[2] = math.nan

    def loss(y):
        if as_module:
            return criterion(model(GOOD), y)  # <- criterion
        return F.mse_loss(model(GOOD), y)  # <- mse

    found = diagnose(model, loss, [torch.ones(6, 1), y])
    assert (found.id, found.where.line) == ("nonfinite-input", line("criterion" if as_module else "mse"))
    assert found.evidence["index"] == [[2, 0]]
    assert found.evidence["samples"] == 1


# -- the loop's own code ---------------------------------------------------------------------------------------------


def test_an_op_in_the_loss(diagnose, line):
    model = nn.Linear(4, 1)

    def loss(x):
        p = torch.relu(model(x) * 0)
        return -torch.log(p).mean()  # <- loss

    found = diagnose(model, loss, [GOOD])
    assert (found.id, found.where.phase, found.where.module) == ("nonfinite-loss", "loss", None)
    assert (found.where.op, found.where.line) == ("aten.log", line("loss"))


def test_an_op_in_the_loss_going_backward(diagnose, line):
    model = nn.Linear(4, 1)

    def loss(x):
        p = (model(x) * 0).square()
        return torch.sqrt(p).mean()  # <- loss backward

    found = diagnose(model, loss, [GOOD])
    assert (found.id, found.where.phase, found.where.module) == ("nonfinite-gradient", "backward", None)
    assert (found.where.op, found.where.line) == ("aten.sqrt", line("loss backward"))


def test_an_op_in_a_loss_that_is_a_module(diagnose, line):
    class Criterion(nn.Module):
        def forward(self, p: Tensor) -> Tensor:
            return -(p.detach() * torch.log(p)).sum()  # <- criterion's

    model, criterion = nn.Linear(4, 1), Criterion()
    found = diagnose(model, lambda x: criterion(torch.relu(-model(x).abs())), [GOOD])
    assert (found.id, found.where.phase) == ("nonfinite-loss", "loss")
    assert (found.where.op, found.where.line) == ("aten.log", line("criterion's"))


def test_an_op_between_two_modules(diagnose, line):
    model = nn.ModuleDict({"encoder": nn.Linear(4, 4), "decoder": nn.Linear(4, 1)})

    def loss(x):
        h = model["encoder"](x)
        h = h / (h * 0)  # <- between
        return model["decoder"](h).mean()

    found = diagnose(model, loss, [GOOD])
    assert (found.where.op, found.where.line) == ("aten.div", line("between"))


def test_an_op_on_the_data_before_the_model(diagnose, line):
    model = nn.Linear(4, 1)

    def loss(x):
        x = x / x.std(0)
        return model(x).mean()  # <- prepared

    found = diagnose(model, loss, [GOOD, torch.ones(6, 4)])
    assert (found.id, found.where.line) == ("nonfinite-input", line("prepared"))


# -- weights ---------------------------------------------------------------------------------------------------------


def test_weights_that_an_update_blew_up(watching):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for at in range(4):
        optimizer.param_groups[0]["lr"] = 0.01 if at != 1 else math.inf
        optimizer.zero_grad()
        model(GOOD).square().mean().backward()
        optimizer.step()
    found = run.origin
    assert (found.id, found.where.phase) == ("nonfinite-parameter", "optimizer")
    assert found.where.parameter == "weight"
    assert found.evidence["step"] == 1
    assert found.evidence["made_by"] == "lr not finite"


def test_what_is_said_of_an_input_is_no_guess(watching):
    """Autograd keeps nothing of the constant that is subtracted: the root of a difference of equal things."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for _ in range(2):
        optimizer.zero_grad()
        output = model(GOOD)
        torch.sqrt(output - output.detach()).sum().backward()
        optimizer.step()
    found = run.origin
    assert (found.id, found.where.op) == ("nonfinite-gradient", "aten.sqrt")
    assert "infinite derivative at 0" in found.message
    assert "are exactly 0" in found.message
    assert "negative" not in found.message


def test_weights_that_went_bad_in_a_step_that_was_not_read(watching, monkeypatch):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    governor = run.watch.governor
    monkeypatch.setattr(governor, "stepped", lambda *_: None)
    for at in range(10):
        governor.reads = at < 3 or at > 7
        optimizer.zero_grad()
        loss = model(GOOD).square().mean()
        (torch.sqrt(loss - loss.detach()) if at == 5 else loss).backward()
        optimizer.step()
    found = run.origin
    assert (found.id, found.where.line) == ("nonfinite-parameter", None)
    assert found.evidence["made_by"] == "not read"
    assert "that the budget left unread" in found.message
    assert any("--budget" in advice for advice in found.recommendations)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_a_learning_rate_that_is_much_too_high(watching, optimizer):
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    optimizer = getattr(torch.optim, optimizer)(model.parameters(), lr=1e37)
    run = watching(model, optimizer)
    for _ in range(6):
        optimizer.zero_grad()
        model(GOOD).square().mean().backward()
        optimizer.step()
    found = run.origin
    assert found.id in {"nonfinite-parameter", "nonfinite-loss", "nonfinite-activation"}
    assert found.evidence["pattern"] in {"update-overflow", "weights-blown-up", "overflow"}


def test_weights_that_the_user_spoiled_are_not_the_forwards_fault(watching):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for at in range(3):
        if at == 1:
            with torch.no_grad():
                model.weight[0, 2] = math.nan
        optimizer.zero_grad()
        model(GOOD).square().mean().backward()
        optimizer.step()
    assert run.origin.where.parameter == "weight"
    assert run.origin.id == "nonfinite-parameter"


def test_a_buffer_that_was_bad(diagnose, line):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 1)
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x):
            return self.head(x - self.mean)  # <- buffer

    model = Model()
    model.mean[2] = math.nan
    found = diagnose(model, lambda x: model(x).mean(), [GOOD])
    assert found.where.line == line("buffer")
    assert "mean" in found.message
