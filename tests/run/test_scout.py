"""Which trainings a process has: what belongs together, what is told apart, what is held."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional as F

import seismograd as sg
from seismograd import patches

fully_shard = pytest.importorskip("torch.distributed.fsdp").__dict__.get("fully_shard")

X = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 5) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()


def test_one_model_is_read_from_its_first_step(scouting: Any) -> None:
    model = network()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), 7)
    assert scouting.steps == [7]
    losses = scouting.series("loss")
    assert len(losses) == 7
    assert losses[-1] < losses[0]
    assert next(iter(scouting.memories[0].readings)).tensors["gradient"].names == tuple(
        name for name, _ in model.named_parameters()
    )


def test_models_one_after_another_are_runs_of_their_own(scouting: Any) -> None:
    for _ in range(3):
        model = network()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 4)
    assert scouting.steps == [4, 4, 4]


def test_models_that_all_exist_before_are_told_apart_too(scouting: Any) -> None:
    models = [network() for _ in range(3)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for model, optimizer in zip(models, optimizers, strict=True):
        train(model, optimizer, 4)
    assert scouting.steps == [4, 4, 4]


@pytest.mark.parametrize("frozen", [False, True])
def test_a_gan_is_one_run_with_two_series(scouting: Any, frozen: bool) -> None:
    generator, critic = nn.Linear(4, 8), nn.Linear(8, 1)
    first, second = (torch.optim.Adam(model.parameters(), lr=1e-3) for model in (critic, generator))
    for _ in range(6):
        first.zero_grad()
        (critic(generator(torch.ones(3, 4)).detach()).mean() - critic(torch.ones(3, 8)).mean()).backward()
        first.step()
        critic.requires_grad_(not frozen)
        second.zero_grad()
        (-critic(generator(torch.ones(3, 4))).mean()).backward()
        second.step()
        critic.requires_grad_(True)
    assert scouting.steps == [6]
    assert len(scouting.series("loss/0")) >= 4
    assert len(scouting.series("loss/1")) >= 4


def test_policy_and_critic_that_take_long_turns_are_one_run(scouting: Any) -> None:
    models = [network(), network()]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
    for _ in range(3):
        for model, optimizer in zip(models, optimizers, strict=True):
            train(model, optimizer, 5)
    assert len(scouting.steps) == 1
    assert scouting.steps[0] == 26  # a step is over when an optimizer steps again, and where the two became one


def test_a_new_optimizer_over_the_same_model_goes_on_with_the_run(scouting: Any) -> None:
    model = network()
    train(model, torch.optim.SGD(model[2].parameters(), lr=0.1), 5)
    train(model, torch.optim.Adam(model.parameters(), lr=1e-3), 5)
    assert scouting.steps == [10]


def test_when_the_user_lets_go_so_do_we(scouting: Any) -> None:
    gc.disable()
    try:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer)
        gone = weakref.ref(model)
        del model, optimizer
        assert gone() is None
    finally:
        gc.enable()
    assert scouting.steps == [5]


def test_a_scaled_first_step_is_read_unscaled(scouting: Any) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    loss = F.cross_entropy(model(X), Y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scouting.series("loss") == [pytest.approx(loss.item())]
    assert scouting.series("grad/norm")[0] < 10


def test_tensors_without_module_or_optimizer(scouting: Any) -> None:
    a, b = (torch.zeros((), requires_grad=True) for _ in range(2))
    for _ in range(10):
        loss = (a + b * X[:, 0] - X[:, 1]).square().mean()
        loss.backward()
        with torch.no_grad():
            for tensor in (a, b):
                tensor.sub_(0.1 * tensor.grad)
                tensor.grad = None
    scouting.scout.close()
    assert len(scouting.steps) == 1
    assert scouting.steps[0] >= 9


def test_the_gradient_of_an_input_is_no_training(scouting: Any) -> None:
    model = network().requires_grad_(False)
    for _ in range(5):
        x = X.clone().requires_grad_()
        model(x).sum().backward()
    assert scouting.steps == []


def test_an_input_that_needs_a_gradient_is_not_trained_next_to_a_model(scouting: Any) -> None:
    """As it is with adversarial training, and with a checkpoint over a frozen base."""
    model, norms = nn.Linear(3, 1), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        inputs = torch.randn(8, 3, requires_grad=True)
        model(inputs).square().mean().backward()
        norms.append(float(nn.utils.get_total_norm([p.grad for p in model.parameters()])))
        optimizer.step()
    assert scouting.series("grad/norm") == pytest.approx(norms)


def test_two_threads_train_two_models(scouting: Any) -> None:
    def work() -> None:
        model = network()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 20)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scouting.steps == [20, 20]


def test_what_the_script_watches_itself_is_left_to_it(scouting: Any) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        train(model, optimizer)
    assert scouting.steps == []
    assert watch.report()["run"]["steps"] == 5


def test_models_have_the_names_of_their_places(scouting: Any) -> None:
    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.critic = nn.Linear(8, 2), nn.Linear(8, 1)

    agent = Agent()
    optimizer = torch.optim.SGD(agent.parameters(), lr=0.1)
    loss = agent.actor(X).square().mean() + agent.critic(X).square().mean()
    loss.backward()
    optimizer.step()
    names = next(iter(scouting.memories[0].readings)).tensors["gradient"].names
    assert set(names) == {"actor.weight", "actor.bias", "critic.weight", "critic.bias"}


@pytest.mark.parametrize(
    ("what", "steps"),
    [("put back, a new optimizer", [6, 8]), ("a new optimizer", [14]), ("put back", [14]), ("others", [14])],
)
def test_a_training_that_begins_again_from_where_it_began_is_another(
    scouting: Any, what: str, steps: list[int]
) -> None:
    model, optimizer = nn.Linear(8, 2), None
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for number in (6, 8):
        if optimizer is None or "optimizer" in what or what == "others":
            optimizer = None
            gc.collect()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(number):
            optimizer.zero_grad()
            model(X).square().mean().backward()
            optimizer.step()
        if "put back" in what:
            model.load_state_dict(before)
        elif what == "others":
            model.load_state_dict({name: value + 1 for name, value in before.items()})
    assert scouting.steps == steps


@pytest.mark.skipif(fully_shard is None, reason="an older torch")
def test_layers_that_are_sharded_are_a_training_like_any_other(scouting: Any) -> None:
    """When it is met, in its first backward pass, the gathered weights of each layer have been freed again."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))
        for layer in (*model[::2], model):
            fully_shard(layer, mesh=init_device_mesh("cpu", (1,)))
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        assert scouting.steps == [10]
    finally:
        dist.destroy_process_group()


def test_everything_is_put_back() -> None:
    before = (
        torch.autograd._engine_run_backward,
        torch._C._nn.cross_entropy_loss,
        torch.binary_cross_entropy_with_logits,
    )
    from seismograd.run.scout import Scout

    scout = Scout(sg.TrainingDebugger, fail=lambda part, error: None, stop_if_wanted=lambda: None)
    assert torch._C._nn.cross_entropy_loss is not before[1]
    scout.close()
    after = (
        torch.autograd._engine_run_backward,
        torch._C._nn.cross_entropy_loss,
        torch.binary_cross_entropy_with_logits,
    )
    assert before == after
    assert patches.listeners() == ()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_loss_can_still_be_scripted(scouting: Any) -> None:
    scripted = torch.jit.script(_loss)
    logits = torch.randn(4, 3)
    assert torch.equal(scripted(logits, torch.tensor([0, 1, 2, 0])), _loss(logits, torch.tensor([0, 1, 2, 0])))


def _loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, labels)
