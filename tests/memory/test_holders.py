"""What grows is found under the name that leads to it, and nothing of the user's is kept."""

from __future__ import annotations

import functools
import gc
import json
import random
import sys
import threading
import weakref
from collections import defaultdict, deque
from typing import Any

import torch
from torch import nn

from seismograd.memory.alive import live_tensors
from seismograd.memory.holders import Looks
from seismograd.memory.sites import in_loop, source_of
from seismograd.memory.telling import grown_in_methods
from seismograd.memory.walk import Walk

MODEL = nn.Linear(4, 4)
TABLE: dict[Any, Any] = {}


def grown(looks: Looks, step: int, **models: nn.Module) -> dict[str, dict[str, Any]]:
    """What grew since the last look, by name."""
    look = looks.look(step, models, sys._getframe(1))
    json.dumps(look.growing, allow_nan=False)
    json.dumps(look.groups, allow_nan=False)
    return {each["name"]: each for each in look.growing}


def test_a_local_list_with_graphs() -> None:
    looks, history, numbers = Looks(), [], [1.0]
    for step in range(3):
        history.append(MODEL(torch.ones(1, 4)).sum())
        numbers.append(0.5)
        found = grown(looks, step)
    told = found["history"]
    assert (told["kind"], told["holds"], told["graphs"], told["numel"]) == ("list", "tensors", True, 1)
    assert told["scope"] == "local of `test_a_local_list_with_graphs`"
    assert told["how"] == "append"
    assert "history.append(" in told["code"]
    assert told["lengths"] == [[0, 1], [1, 2], [2, 3]]
    assert not told["emptied"]
    assert found["numbers"]["holds"] == "numbers"


def test_only_what_grew_is_told_of() -> None:
    looks, still, grows = Looks(), [torch.ones(2)], []
    for step in range(4):
        grows.append(object())
        found = grown(looks, step)
    assert "grows" in found
    assert "still" not in found
    assert still


def test_where_things_can_be_held() -> None:
    class Owner:
        shared: list[Any] = []  # noqa: RUF012

        def __init__(self) -> None:
            self.own: dict[str, list[Any]] = defaultdict(list)
            self.queue: deque[Any] = deque()

    class Slotted:
        __slots__ = ("items",)

    def counted(x: int, seen: list[Any] = []) -> None:  # noqa: B006
        seen.append(x)

    @functools.cache
    def cached(at: int) -> torch.Tensor:
        return torch.full((8,), float(at))

    def closed() -> Any:
        inside: set[Any] = set()

        def keeps(x: Any) -> None:
            inside.add(x)

        return keeps

    owner, slotted, keep, looks = Owner(), Slotted(), closed(), Looks()
    slotted.items = []
    TABLE.clear()
    for step in range(3):
        owner.shared.append(object())
        owner.own["loss"].append(object())
        owner.queue.append(object())
        slotted.items.append(object())
        counted(step)
        cached(step)
        keep(object())
        TABLE[step] = object()
        found = grown(looks, step)
    names = {"owner.own['loss']", "owner.queue", "Owner.shared", "slotted.items", "seen", "inside", "TABLE", "cached"}
    assert names <= set(found), names - set(found)
    assert found["owner.queue"]["scope"] == "attribute of `Owner`"
    assert found["Owner.shared"]["scope"] == "attribute of class `Owner`"
    assert found["seen"]["scope"].startswith("default argument of")
    assert found["inside"]["scope"].startswith("held by function")
    assert found["TABLE"]["scope"] == "global"
    assert found["cached"]["kind"] == "cache"


def test_modules_hooks_and_buffers() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(2, 2))
            self.register_buffer("seen", torch.zeros(0))

    net, looks = Net(), Looks()
    for step in range(3):
        net.inner[0].register_forward_hook(lambda *_: None)
        net.inner[0].weight.register_hook(lambda grad: grad)
        net.seen = torch.cat([net.seen, torch.ones(5)])
        found = grown(looks, step, model=net)
    assert found["net.inner[0]"]["kind"] == "hooks"
    assert found["net.inner[0]"]["module"] == "model.inner.0"
    assert found["net.inner[0].weight"]["kind"] == "hooks"
    assert found["net.seen"]["kind"] == "tensor"
    assert found["net.seen"]["count"] == 15


def test_what_bounds_a_container_is_told() -> None:
    class Ring:
        def __init__(self) -> None:
            self.capacity, self.entries = 100, []  # type: ignore[var-annotated]

    ring, looks = Ring(), Looks()
    queue: deque[Any] = deque(maxlen=50)
    guarded: list[Any] = []
    cut: list[Any] = []
    for step in range(3):
        again: list[Any] = []
        for _ in range(step + 1):
            again.append(object())
        ring.entries.append(object())
        queue.append(object())
        if len(guarded) < 10:
            guarded.append(object())
        cut.append(object())
        cut = cut[-100:]
        found = grown(looks, step)
    assert found["ring.entries"]["limit"] == 100
    assert found["queue"]["limit"] == 50
    assert found["guarded"]["guarded"]
    assert found["cut"]["emptied"]
    assert found["again"]["emptied"]


def test_a_local_of_a_function_in_a_loop_passes() -> None:
    def epoch(looks: Looks, number: int) -> dict[str, Any]:
        losses = []
        for step in range(3):
            losses.append(object())
            found = grown(looks, 10 * number + step)
        return found

    for number in range(2):
        assert epoch(Looks(), number)["losses"]["passing"]
    once = epoch(Looks(), 0)
    assert not once["losses"]["passing"]


def test_a_container_that_is_read_and_one_that_is_not() -> None:
    looks, used, unused = Looks(), [], []  # type: ignore[var-annotated]
    for step in range(3):
        used.append(torch.ones(3))
        unused.append(torch.ones(3))
        found = grown(looks, step)
    assert torch.stack(used).sum() == 9
    assert found["used"]["read"] is True
    assert found["unused"]["read"] is False


def test_items_that_share_their_memory_weigh_nothing() -> None:
    whole = torch.ones(1000, 100)
    looks, views, copies = Looks(), [], []  # type: ignore[var-annotated]
    for step in range(4):
        views += [whole[step], whole[step + 10]]
        copies += [whole[step].clone(), whole[step].clone()]
        found = grown(looks, step)
    assert found["views"]["each"] < 400
    assert found["copies"]["each"] >= 400


def test_threads_are_counted() -> None:
    looks, over, threads = Looks(), threading.Event(), []
    for step in range(3):
        threads.append(threading.Thread(target=over.wait))
        threads[-1].start()
        found = grown(looks, step)
    over.set()
    for thread in threads:
        thread.join()
    assert found["threads"]["kind"] == "threads"


def test_live_tensors_are_grouped_with_who_holds_them() -> None:
    looks, kept = Looks(), []
    for step in range(4):
        kept.append(torch.ones(123, 45))
        look = looks.look(step, {}, sys._getframe())
    group = next(group for group in look.groups if group["shape"] == [123, 45])
    assert group["count"] == 4
    assert group["dtype"] == "float32"
    assert group["held"] == {"kept": 4}


def test_nothing_is_kept_alive_and_nothing_is_drawn() -> None:
    class Thing:
        pass

    looks, things = Looks(), []
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    for step in range(3):
        things.append(Thing())
        grown(looks, step)
    references = [weakref.ref(thing) for thing in things]
    things.clear()
    assert all(reference() is None for reference in references)
    assert torch.equal(torch_state, torch.get_rng_state())
    assert python_state == random.getstate()
    assert gc.isenabled()


def test_a_frames_locals_are_not_held_by_the_frame() -> None:
    """Before Python 3.13 a frame keeps what `f_locals` gave."""

    class Thing:
        pass

    thing = Thing()
    reference = weakref.ref(thing)
    grown(Looks(), 0)
    del thing
    assert reference() is None


def test_what_the_user_has_of_locals_stays() -> None:
    number = 5
    known = locals()
    grown(Looks(), 0)
    assert known["number"] == number


def test_no_code_of_the_users_is_run() -> None:
    class Touchy:
        """Everything about it raises, but being there."""

        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

        def __len__(self) -> int:
            raise RuntimeError

        __iter__ = __hash__ = __eq__ = __len__  # type: ignore[assignment]

    class Odd(list[Any]):
        def __len__(self) -> int:
            raise RuntimeError

        def __iter__(self) -> Any:
            raise RuntimeError

    class Lazy(dict[Any, Any]):
        def __getitem__(self, key: Any) -> Any:
            raise RuntimeError

        def items(self) -> Any:
            raise RuntimeError

    things = [Touchy(), Odd(), Lazy(a=1)]
    looks = Looks()
    for step in range(3):
        list.append(things[1], Touchy())  # type: ignore[arg-type]
        dict.__setitem__(things[2], step, Touchy())  # type: ignore[index, call-overload]
        found = grown(looks, step)
    assert {"things[1]", "things[2]"} <= set(found)


def test_a_walk_stops_in_time() -> None:
    deep: list[Any] = []
    for _ in range(60):
        deep = [deep, *([object() for _ in range(60)])]
    walk = Walk({}, seconds=0.0).go(sys._getframe(), in_loop)
    assert not walk.complete
    assert deep


def test_odd_tensors_do_not_disturb() -> None:
    odd = [
        torch.empty(0),
        torch.ones(3).to_sparse(),
        torch.empty(3, device="meta"),
        torch.ones(2, dtype=torch.complex64),
        nn.UninitializedParameter(),
        torch.ones(2, dtype=torch.float8_e4m3fn),
    ]
    looks, kept = Looks(), []  # type: ignore[var-annotated]
    for step in range(3):
        kept += [odd[0].clone(), odd[1].clone(), odd[2].clone(), odd[5].clone()]
        found = grown(looks, step)
    assert found["kept"]["holds"] == "tensors"


class Kept(torch.utils.data.Dataset[int]):
    def __init__(self) -> None:
        self.seen: list[int] = []
        self.cache: dict[int, int] = {}
        self.made = [0]
        self.made.append(1)

    def __getitem__(self, at: int) -> int:
        self.seen.append(at)
        if at not in self.cache:
            self.cache[at] = at
        return at


def test_what_the_methods_of_a_dataset_put_into() -> None:
    told = {each["name"]: each for each in grown_in_methods(Kept())}
    assert set(told) == {"self.seen", "self.cache"}
    assert not told["self.seen"]["guarded"]
    assert told["self.cache"]["guarded"]
    assert told["self.seen"]["code"] == "self.seen.append(at)"


def test_a_file_without_source_says_nothing() -> None:
    assert source_of("<string>").grows == []
    assert source_of("/nowhere/at/all.py").grows == []


def test_what_torch_compile_leaves_behind_takes_no_memory() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv())
    kept = [mode.from_tensor(torch.ones(123, 457)), torch.ones(123, 457)]
    (group,) = [one for one in live_tensors({}, []) if one["shape"] == [123, 457]]
    assert group["count"] == 1
    assert len(kept) == 2
