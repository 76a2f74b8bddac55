"""What the onlooker of parameters tells of real loops."""

from __future__ import annotations

import gc
import json
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import seismograd as sg
from seismograd.onlookers.weights.membership import Membership
from seismograd.sinks import Memory


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.spare, self.last = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.last(F.relu(self.first(x)))


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.setattr("seismograd.lookout.ONLOOKERS", (Membership,))


def train(model, optimizer, steps=6, *, each=None, loss=None, models=None):
    """The facts of each step."""
    torch.manual_seed(0)
    x, y = torch.randn(16, 3), torch.randint(0, 2, (16,))
    memory = Memory()
    with sg.watch(models or model, optimizer, sinks=[memory]):
        for step in range(steps):
            if each is not None:
                each(step)
            optimizer.zero_grad()
            (F.cross_entropy(model(x), y) if loss is None else loss(x, y)).backward()
            optimizer.step()
    told = [reading.facts["parameters"] for reading in memory.readings if "parameters" in reading.facts]
    json.dumps(told, allow_nan=False)
    return told


def sgd(*modules, **more):
    return torch.optim.SGD([p for module in modules for p in module.parameters()], lr=0.1, **more)


def test_what_is_empty_here_is_another_ranks_shard():
    model = Net()
    model.spare.weight, model.spare.bias = nn.Parameter(torch.empty(0)), nn.Parameter(torch.empty(0))
    *_, told = train(model, sgd(model))
    assert (told["held"], told["reached"]) == (6, 6)
    assert "unused" not in told


def test_a_module_that_is_never_called():
    model = Net()
    *_, told = train(model, sgd(model))
    assert (told["held"], told["reached"], told["looks"], told["backwards"]) == (6, 4, 6, 6)
    (unused,) = told["unused"]
    assert (unused["module"], unused["passed_over"], unused["fits"], unused["parameters"]) == ("spare", True, True, 2)
    assert told["optimizers"][0] | {"steps": 6, "fed": 6, "unreached": 2} == told["optimizers"][0]
    assert told["line"]["file"].endswith("test_membership.py")
    assert not {"cut", "idle", "outside", "unregistered", "blocked", "claims", "stale"} & told.keys()


class Branches(nn.Module):
    """Calls `side` and does with it what is asked."""

    def __init__(self, use):
        super().__init__()
        self.trunk, self.side, self.use = nn.Linear(3, 2), nn.Linear(3, 2), use
        self.kept = []

    def forward(self, x):
        made = self.side(x)
        if self.use == "keep":
            self.kept = [made]
        return (self.trunk(x), made) if self.use == "return" else self.trunk(x)


@pytest.mark.parametrize(("use", "dropped"), [("drop", 5), ("keep", 0), ("return", 0)])
def test_what_becomes_of_an_idle_module(use, dropped):
    model = Branches(use)
    whole = nn.Sequential(model)

    def loss(x, y):
        made = whole(x)
        return F.cross_entropy(made[0] if use == "return" else made, y)

    *_, told = train(whole, sgd(whole), loss=loss, steps=6)
    (idle,) = told["idle"]["modules"]
    assert (idle["module"], idle["parameters"], idle["dropped"], idle["measured"]) == ("0.side", 2, dropped, 0)
    assert told["over"]


def test_an_idle_module_that_a_loss_is_computed_of():
    model = Branches("return")

    def loss(x, y):
        made, side = model(x)
        return F.cross_entropy(made, y) + F.cross_entropy(side, y).item()

    *_, told = train(model, sgd(model), loss=loss, steps=6)
    assert told["idle"]["modules"][0]["measured"] == 5


def test_one_that_is_moved_by_hand_is_not_idle():
    model = Branches("drop")

    def each(step):
        with torch.no_grad():
            model.side.weight.mul_(0.9)

    *_, told = train(model, sgd(model), each=each)
    assert told["idle"]["modules"][0]["dropped"] == 0


@pytest.mark.parametrize(("change", "is_fresh"), [(lambda e: None, True), (lambda e: e.weight.mul_(3.0), False)])
def test_a_model_that_feeds_the_rest_and_that_no_optimizer_holds(change, is_fresh):
    encoder, head = nn.Linear(3, 256), nn.Linear(256, 2)
    with torch.no_grad():
        change(encoder)
    models = {"encoder": encoder, "head": head}
    *_, told = train(head, sgd(head), loss=lambda x, y: F.cross_entropy(head(encoder(x)), y), models=models)
    (outside,) = told["outside"]
    assert (outside["model"], outside["whole"], outside["early"], outside["late"]) == ("encoder", True, True, [])
    assert outside["fresh"] is is_fresh


def test_a_head_is_no_link_of_the_chain():
    model = Net()
    model.spare = nn.Linear(4, 3)
    *_, told = train(model, sgd(model))
    assert told["unused"][0]["fits"] is False


def test_who_is_outside_of_all_optimizers():
    model = Net()
    optimizer = sgd(model.first, model.spare)
    *_, told = train(model, optimizer)
    (outside,) = told["outside"]
    assert outside["names"] == outside["late"] == ["last.weight", "last.bias"]
    assert (outside["left"], outside["modules"], outside["whole"], outside["times"]) == (1, 3, False, 6)
    *_, told = train(model, sgd(model.last))
    assert (told["outside"][0]["names"], told["outside"][0]["late"]) == (["first.weight", "first.bias"], [])


def test_what_is_moved_by_hand_is_not_outside():
    model = Net()

    def move(step):
        for parameter in model.last.parameters():
            if parameter.grad is not None:
                parameter.data -= 0.1 * parameter.grad
                parameter.grad = None

    *_, told = train(model, sgd(model.first), each=move)
    assert told["outside"] == []


def test_a_plain_list_and_a_plain_tensor():
    class Odd(Net):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(4, 4)]
            self.scale = torch.ones(4, requires_grad=True)

        def forward(self, x):
            return self.last(self.layers[0](F.relu(self.first(x))) * self.scale)

    model = Odd()
    *_, told = train(model, sgd(model))
    assert [(each["name"], each["layer"], each["distinct"]) for each in told["unregistered"]] == [
        ("layers[0]", True, 2),
        ("scale", False, 1),
    ]
    *_, told = train(model, sgd(model, model.layers[0]))
    assert [each["name"] for each in told["unregistered"]] == ["scale"]


def test_a_layer_made_in_forward():
    class Odd(Net):
        def forward(self, x):
            return self.last(nn.Linear(4, 4)(F.relu(self.first(x))))

    model = Odd()
    *_, told = train(model, sgd(model))
    (fresh,) = told["unregistered"]
    assert fresh["name"] == "Linear #0"
    assert fresh["distinct"] >= 10


@pytest.mark.parametrize("cut", [torch.Tensor.detach, lambda x: torch.tensor(x.tolist())])
def test_a_cut_inside_the_model(cut):
    class Odd(Net):
        def forward(self, x):
            return self.last(cut(self.first(x)))

    model = Odd()
    *_, told = train(model, sgd(model))
    assert told["cut"]["names"] == ["first.weight", "first.bias"]
    assert told["cut"]["times"] == 6


def test_what_nobody_uses_is_not_cut():
    class Odd(Net):
        def forward(self, x):
            hidden = F.relu(self.first(x))
            self.spare(hidden)
            return self.last(hidden)

    model = Odd()
    *_, told = train(model, sgd(model))
    assert told["idle"]["names"] == ["spare.weight", "spare.bias"]
    assert "cut" not in told


def test_a_model_that_never_gets_a_gradient():
    encoder, head = nn.Linear(3, 4), nn.Linear(4, 2)
    models = {"encoder": encoder, "head": head}

    def loss(x, y):
        return F.cross_entropy(head(torch.from_numpy(encoder(x).detach().numpy().copy())), y)

    *_, told = train(None, sgd(encoder, head), models=models, loss=loss)
    assert told["cut"]["names"] == ["encoder.weight", "encoder.bias"]
    encoder.eval()
    *_, told = train(None, sgd(encoder, head), models=models, loss=loss)
    assert "cut" not in told


def test_a_loss_that_is_cut_off():
    model = Net()
    told = train(model, sgd(model), 8, loss=lambda x, y: F.cross_entropy(model(x), y).detach().requires_grad_())
    assert [(each["backwards"], each["reached"]) for each in told] == [(6, 0), (8, 0)]
    assert told[-1]["optimizers"][0] | {"steps": 8, "fed": 0} == told[-1]["optimizers"][0]


def test_ops_without_a_slope():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    *_, told = train(model, sgd(model), loss=lambda x, y: F.cross_entropy(model(x).round(), y))
    assert (told["blocked"]["count"], told["blocked"]["ops"]) == (4, ["round"])

    def around(x, y):
        out = model(x)
        return F.cross_entropy(out + (out.round() - out).detach(), y)

    *_, told = train(model, sgd(model), loss=around)
    assert "blocked" not in told


def test_attributes_that_freeze_nothing():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[0].requires_grad = False
    model[1].weight.requiresgrad = False
    *_, told = train(model, sgd(model))
    assert [(each["on"], each["what"], each["attribute"]) for each in told["claims"]] == [
        ("0", "module", "requires_grad"),
        ("1.weight", "parameter", "requiresgrad"),
    ]
    model[0].requires_grad_(False)
    *_, told = train(model, sgd(model))
    assert [each["on"] for each in told["claims"]] == ["1.weight"]


@pytest.mark.parametrize("to_none", [True, False])
def test_an_old_gradient_that_goes_on(to_none):
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))

    def freeze(step):
        model[0].requires_grad_(step < 3)
        if to_none:
            model.zero_grad()

    optimizer = sgd(model, momentum=0.9)
    optimizer.zero_grad = lambda: [p.grad.zero_() for p in model.parameters() if p.grad is not None]
    *_, told = train(model, optimizer, 8, each=freeze)
    assert ("stale" in told) is not to_none


def test_weights_that_are_put_back_before_each_step():
    model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2))
    kept = {name: value.clone() for name, value in model.state_dict().items() if name.startswith("0")}

    def put_back(step):
        model.load_state_dict(kept, strict=False)

    def loss(x, y):
        return F.cross_entropy(model(torch.cat([x, x, x[:, :2]], 1)), y)

    *_, told = train(model, sgd(model), 6, each=put_back, loss=loss)
    assert told["restored"] == {"names": ["0.weight"], "times": 5, "of": 1}  # `1.weight` has too few elements
    assert "restored" not in train(model, sgd(model), 6, loss=loss)[-1]


def test_a_weight_of_which_one_row_learns_and_the_others_are_put_back():
    """Textual inversion: the embedding is in the optimizer, and all words but the new one are put back."""
    model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2))
    kept = model[0].weight[:3].detach().clone()

    def put_back(step):
        with torch.no_grad():
            model[0].weight[:3] = kept

    def loss(x, y):
        return F.cross_entropy(model(torch.cat([x, x, x[:, :2]], 1)), y)

    seen = train(model, sgd(model), 20, each=put_back, loss=loss)
    assert not any("restored" in told for told in seen)


def test_an_optimizer_of_copies():
    model, other = Net(), Net()
    *_, told = train(model, sgd(other))
    (optimizer,) = told["optimizers"]
    assert (optimizer["fed"], optimizer["unreached"], optimizer["copies"]) == (
        0,
        6,
        5,
    )  # nothing like `spare.weight` is reached


def test_nothing_is_kept_alive():
    model = Net()
    model.layers = [nn.Linear(4, 4)]
    kept = weakref.ref(model)
    watch = sg.watch(model, optimizer := sgd(model.first), sinks=[])
    for _ in range(4):
        loss = model(torch.randn(5, 3)).sum()
        loss.backward()
        optimizer.step()
    watch.close()
    del model, optimizer, loss
    gc.collect()
    assert kept() is None


class Attributes(nn.Module):
    """Holds what it needs in plain lists."""

    def __init__(self, *held):
        super().__init__()
        self.held, self.last = list(held), nn.Linear(3, 2)

    def forward(self, x):
        for one in self.held:
            x = x @ one if isinstance(one, torch.Tensor) else one(x)
        return self.last(x)


def test_parameters_in_a_plain_list():
    model = Attributes(nn.Parameter(torch.eye(3)), nn.Parameter(torch.eye(3)))
    *_, told = train(model, sgd(model))
    assert [each["name"] for each in told["unregistered"]] == ["held[0]", "held[1]"]


def test_a_large_module_in_a_plain_list_is_one_name():
    encoder = nn.TransformerEncoderLayer(3, 1, 4, batch_first=True)
    model = Attributes(encoder)
    *_, told = train(model, sgd(model))
    (one,) = told["unregistered"]
    assert (one["name"], one["layer"], one["looks"]) == ("held[0]", True, 6)
    assert one["again"]
    assert not told.get("outside")


def test_a_tensor_whose_memory_is_let_go_after_backward_is_let_be():
    """As sharding does with what it has gathered: `seismograd run` may meet such a one in the middle of a step."""
    model = Net()
    weight = model.last.weight
    kept = weight.detach().clone()

    def gather(*_):
        weight.untyped_storage().resize_(kept.nbytes)
        weight.data.copy_(kept)

    def let_go(parameter):
        parameter.untyped_storage().resize_(0)

    model.register_forward_pre_hook(gather)
    weight.register_post_accumulate_grad_hook(let_go)
    *_, told = train(model, sgd(model.first, model.spare))
    assert told["looks"] == 6
