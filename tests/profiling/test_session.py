"""A profile around real tiny loops: the trace, the tables, what is put back, and what happens inside another one."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, TensorDataset

from seismograd.profiling import Profile, session
from seismograd.profiling.result import ProfileResult


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.head = nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.encoder(x))
        return out


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net()


def train(net: nn.Module, steps: int = 3) -> list[float]:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        x = torch.randn(16, 8, generator=generator)
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def names_in(path: Path) -> list[str]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [str(event.get("name")) for event in json.loads(data)["traceEvents"]]


def shown(profile: Profile) -> ProfileResult:
    assert profile.result is not None
    return profile.result


@pytest.mark.parametrize("name", ["profile.json", "new/folder/profile.json.gz"])
def test_a_trace_that_viewers_open(net: Net, tmp_path: Path, name: str) -> None:
    with Profile(tmp_path / name) as profile:
        train(net)
    names = names_in(tmp_path / name)
    assert "aten::addmm" in names
    assert "encoder.0 (Linear)" in names
    assert any(name.endswith("): train") for name in names)
    assert shown(profile).trace == str(tmp_path / name)
    assert [path.name for path in (tmp_path / name).parent.iterdir()] == [Path(name).name], "no draft is left"


def test_the_tables(net: Net) -> None:
    with Profile() as profile:
        train(net)
    result = shown(profile)
    assert result.steps == 3
    assert result.trace is None
    ops = {op.name: op for op in result.ops}
    assert ops["aten::addmm"].calls == 6
    assert ops["aten::addmm"].flops == 3 * (2 * 16 * 8 * 32 + 2 * 16 * 32 * 2)
    assert ops["aten::addmm"].shapes.startswith(("32, 16x8, 8x32", "2, 16x32, 32x2"))
    assert ops["aten::addmm"].allocated >= 3 * 4 * 16 * (32 + 2)
    assert "test_session.py" in ops["aten::addmm"].line
    modules = {module.name: module for module in result.modules}
    assert set(modules) == {"Net", "encoder", "encoder.0", "encoder.1", "head"}
    assert all(module.calls == 3 and module.forward > 0 for module in modules.values())
    assert modules["encoder.0"].backward > 0
    assert modules["Net"].forward >= modules["encoder"].forward >= modules["encoder.0"].forward
    assert modules["Net"].backward == pytest.approx(sum(modules[n].backward for n in ("encoder", "head")), rel=1e-6)
    lines = {line.code: line for line in result.lines}
    assert lines["loss.backward()"].calls == 3
    assert lines["loss.backward()"].file.endswith("test_session.py")
    assert {"forward", "backward", "optimizer", "rest"} <= set(result.phases)
    assert sum(result.phases.values()) == pytest.approx(1.0)


def test_two_models_do_not_share_their_names(net: Net) -> None:
    critic, other = Net(), Net()
    with Profile() as profile:
        for model in (net, critic, other, net):
            nn.CrossEntropyLoss()(model(torch.ones(4, 8)), torch.zeros(4, dtype=torch.long)).backward()
    modules = {module.name: module for module in shown(profile).modules}
    assert modules["head"].calls == 2
    assert modules["Net 2.head"].calls == modules["Net 3.head"].calls == 1
    assert modules["head"].backward > 0
    assert modules["CrossEntropyLoss"].backward > 0


def test_a_module_that_cannot_be_hashed() -> None:
    class Odd(nn.Linear):
        def __eq__(self, other: object) -> bool:
            return False

        __hash__ = None  # type: ignore[assignment]

    with Profile() as profile:
        Odd(8, 2)(torch.ones(4, 8))
    assert [module.name for module in shown(profile).modules] == ["Odd"]


def test_the_result_in_words_and_as_json(net: Net) -> None:
    with Profile() as profile:
        train(net)
    text = str(profile.result)
    assert text.startswith("Profile of ")
    assert ", 3 steps" in text
    for word in ("aten::addmm", "encoder.0 (Linear)", "loss.backward()", "own time", "FLOPs"):
        assert word in text
    told = shown(profile).to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert len(json.dumps(told)) < 50_000
    assert told["verdict"]


def test_training_is_the_same_to_the_bit(net: Net) -> None:
    plain = train(net, 5)
    weights = [p.detach().clone() for p in net.parameters()]
    torch.manual_seed(0)
    again = Net()
    state = torch.get_rng_state()
    with Profile():
        assert train(again, 5) == plain
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(weights, again.parameters(), strict=True))


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_everything_is_put_back_and_written_however_it_ends(
    net: Net, tmp_path: Path, error: type[BaseException]
) -> None:
    call, hooks = nn.Module.__call__, len(optimizers._global_optimizer_post_hooks)
    with pytest.raises(error), Profile(tmp_path / "p.json") as profile:  # noqa: PT012
        train(net)
        assert nn.Module.__call__ is not call
        raise error
    assert nn.Module.__call__ is call
    assert len(optimizers._global_optimizer_post_hooks) == hooks
    assert not torch._C._autograd._profiler_enabled()
    assert not session._open
    assert "aten::addmm" in names_in(tmp_path / "p.json")
    assert shown(profile).steps == 3


def test_one_inside_another_is_part_of_it(net: Net, tmp_path: Path) -> None:
    with Profile(tmp_path / "outer.json") as outer:
        with Profile(tmp_path / "inner.json") as inner:
            train(net)
        assert "part of the profile around it" in str(inner.result)
        assert not inner.recording
        assert outer.recording
    assert inner.result is outer.result
    assert shown(outer).steps == 3
    assert not (tmp_path / "inner.json").exists()


def test_the_same_one_may_be_entered_again(net: Net, tmp_path: Path) -> None:
    profile = Profile(tmp_path / "p.json")
    with profile, profile:
        train(net, 1)
    assert shown(profile).steps == 1
    with profile:
        train(net, 2)
    assert shown(profile).steps == 2


def test_inside_and_around_torchs_own(net: Net, tmp_path: Path) -> None:
    with torch.profiler.profile() as torchs, Profile(tmp_path / "p.json") as profile:
        train(net)
    assert "torch.profiler is at work around it" in str(profile.result)
    assert not (tmp_path / "p.json").exists()
    assert any(event.name == "aten::addmm" for event in torchs.events() or ())
    with Profile(tmp_path / "p.json") as profile:
        train(net)
        with torch.profiler.profile() as torchs:
            train(net)
    assert any(event.name == "aten::addmm" for event in torchs.events() or ())
    assert "took over" in str(profile.result)


def test_torchs_own_that_was_started_inside_is_not_stopped(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "STEPS", 1)
    start = torch.autograd.profiler.profile._start_trace
    with Profile() as profile, torch.profiler.profile() as torchs:
        train(net, 4)  # ours would stop after the first step
    calls = [event for event in torchs.events() or () if event.name == "aten::addmm"]
    assert len(calls) == 8
    assert "took over" in str(profile.result)
    assert torch.autograd.profiler.profile._start_trace is start
    profile.step()  # when nothing is open, nothing happens


def test_two_threads(net: Net) -> None:
    other = Profile()

    def work() -> None:
        with other:
            net(torch.ones(1, 8))

    with Profile() as profile:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        train(net)
    assert shown(profile).steps == 3
    assert other.result is profile.result


def test_a_long_run_is_recorded_for_some_steps(net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "STEPS", 2)
    call = nn.Module.__call__
    with Profile(tmp_path / "p.json") as profile:
        train(net, 2)
        assert profile.recording
        train(net, 1)
        assert not profile.recording
        assert nn.Module.__call__ is call
        train(net, 7)
    assert shown(profile).steps == 2
    assert "Recorded are the first 2 steps" in str(profile.result)
    assert names_in(tmp_path / "p.json").count("Net") == 2
    with Profile(schedule=None) as profile:
        train(net, 5)
    assert shown(profile).steps == 5


def test_without_steps_it_ends_after_a_while(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LONG", 0.0)
    with Profile() as profile:
        net(torch.ones(1, 8))
        assert not profile.recording
    assert "Recorded are the first" in str(profile.result)


def test_a_schedule(net: Net, tmp_path: Path) -> None:
    with Profile(tmp_path / "p.json", schedule=(2, 1, 3)) as profile:
        train(net, 10)
        assert not profile.recording
    assert shown(profile).steps == 3
    assert names_in(tmp_path / "p.json").count("head (Linear)") == 3
    with Profile(tmp_path / "p.json", schedule=(1, 0, 2, 2)) as profile:
        train(net, 10)
    assert names_in(tmp_path / "p.2.json").count("head (Linear)") == 2
    assert shown(profile).trace == str(tmp_path / "p.2.json")
    with Profile(tmp_path / "late.json", schedule=(50, 0, 1)) as profile:
        train(net, 3)
    assert "ended after 3 steps" in str(profile.result)
    assert not (tmp_path / "late.json").exists()


def test_steps_by_hand(net: Net) -> None:
    with Profile(schedule=(1, 0, 1), steps_from_optimizer=False) as profile:
        for _ in range(4):
            net(torch.ones(1, 8))
            profile.step()
    assert shown(profile).steps == 1
    assert {module.name: module.calls for module in shown(profile).modules}["Net"] == 1


def test_a_loader_with_workers_inside(net: Net) -> None:
    loader = DataLoader(TensorDataset(torch.randn(32, 8)), batch_size=8, num_workers=2)
    with Profile() as profile:
        for (x,) in loader:
            net(x)
    assert shown(profile).phases["data"] > 0
    assert {module.name: module.calls for module in shown(profile).modules}["head"] == 4


COMPILED = """
import torch
from torch import nn
from seismograd.profiling import Profile

net = torch.compile(nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)), backend="eager")
x = torch.ones(4, 8)
expected = net(x)
counters = torch._dynamo.utils.counters["frames"]
frames = counters["total"]
with Profile() as profile:
    assert torch.equal(net(x), expected)
assert torch.equal(net(x), expected)
assert counters["total"] == frames, (counters["total"], frames)
assert any(op.name == "aten::addmm" for op in profile.result.ops)
"""


def test_a_compiled_model_is_not_compiled_again() -> None:
    """In a process of its own: what other tests have compiled is counted, too."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_name_with_quotes_does_not_break_the_trace(net: Net, tmp_path: Path) -> None:
    with Profile(tmp_path / "p.json"), torch.profiler.record_function('the "best" part'):
        net(torch.ones(1, 8))
    assert 'the "best" part' in names_in(tmp_path / "p.json")


def test_without_stacks_shapes_and_the_rest(net: Net) -> None:
    with Profile(stacks=False, shapes=False, memory=False, flops=False) as profile:
        train(net)
    assert not shown(profile).lines
    assert all(not op.shapes and not op.flops and not op.allocated for op in shown(profile).ops)


def test_beside_a_watch(net: Net) -> None:
    import seismograd as sg

    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with sg.watch(net, optimizer) as watch, Profile() as profile:
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
    assert watch.get_training_summary()["total_steps"] == 3
    assert shown(profile).steps == 3
    assert {module.name: module.calls for module in shown(profile).modules}["head"] == 3
    assert "A watch is at work" in str(profile.result)
    assert not shown(profile).lines


def test_its_events_are_let_go_at_once(net: Net) -> None:
    held: list[weakref.ref[Any]] = []
    read = Profile._read

    def reading(self: Profile, profiler: Any, *rest: Any) -> ProfileResult:
        held.append(weakref.ref(profiler.profiler))
        return read(self, profiler, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Profile, "_read", reading)
        with Profile():
            train(net)
    assert held[0]() is None


def test_an_empty_block() -> None:
    with Profile() as profile:
        pass
    assert "No op of torch ran" in str(profile.result)


@pytest.mark.parametrize("schedule", ["always", (1, 2), (1, 1, 0), (-1, 0, 1), 3])
def test_a_wrong_schedule(schedule: Any) -> None:
    with pytest.raises(ValueError, match=r"schedule .* is unknown: use 'auto', None"):
        Profile(schedule=schedule)


def test_a_path_that_cannot_be_written_is_said_at_once(net: Net, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    profile = Profile(tmp_path / "file" / "p.json")
    with pytest.raises(OSError, match="the trace cannot be written"), profile:
        raise AssertionError("not reached")
    with Profile(tmp_path / "p.json") as profile:  # and nothing is left open
        train(net, 1)
    assert shown(profile).steps == 1


def test_a_disk_that_fills_up_does_not_stop_the_training(
    net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(session.trace, "write", full)
    with pytest.warns(RuntimeWarning, match="No space left"), Profile(tmp_path / "p.json") as profile:
        train(net)
    assert shown(profile).steps == 3
    assert shown(profile).trace is None


def test_a_profiler_that_does_not_start_does_not_stop_the_training(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no CUPTI")

    monkeypatch.setattr(torch.profiler, "profile", broken)
    with pytest.warns(RuntimeWarning, match="no CUPTI"), Profile() as profile:
        train(net)
    assert "no CUPTI" in str(profile.result)


def test_nothing_is_said_on_the_terminal() -> None:
    program = (
        "import torch\n"
        "from seismograd.profiling import Profile\n"
        "kept = [torch.ones(4) for _ in range(8)]\n"
        "with Profile():\n"
        "    total = kept[0] + 1\n"
        "    kept.clear()\n"
        "import os; assert 'KINETO_LOG_LEVEL' not in os.environ\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == done.stderr == ""
