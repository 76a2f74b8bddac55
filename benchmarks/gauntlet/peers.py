"""What other tools say of the scripts: `python peers.py WAY SECONDS SCRIPT...` writes one line of JSON for each.

Every script runs in a fork of this process, so that torch is imported once. Each tool is used as its documentation
says, with its defaults, and attached from outside: to every module that is called from outside of modules, at its first
call; it is told the loss that `backward()` is called on, and a step when an optimizer has stepped.

What they say is theirs; how it is held against our ids is here, and meant to be generous:

- `detect_anomaly` and `DebugUnderflowOverflow` speak of NaN and Inf only: any `nonfinite-*` is then a right diagnosis.
- `torchmortem`: findings of its severities WARNING and CRITICAL, the worst first, one for each title (`MORTEM`).
- `neuraldbg`: the events it records that end in an unhealthy state, in order (`STATES`). Its ranked hypotheses need an
  engine that cannot be had from PyPI.
- `torchinstruments` records statistics and says of itself that it makes no diagnoses. The one statistic that needs no
  reader counts: a non-finite share above zero. It is asked to sample every tenth forward, not once a minute.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from localisation import peers as localisation

ANOMALY, OVERFLOW = localisation.ANOMALY, localisation.OVERFLOW
NONFINITE = ["nonfinite-input", "nonfinite-activation", "nonfinite-loss", "nonfinite-gradient", "nonfinite-parameter"]
MORTEM = {
    "Vanishing gradients": ["gradient-vanishing"],
    "Gradient stalling": ["gradient-vanishing", "missing-gradient", "frozen-parameter"],
    "Exploding gradients": ["gradient-explosion"],
    "Update ratio too low": ["update-ratio-low", "lr-too-low", "frozen-parameter"],
    "Update ratio too high": ["update-ratio-high", "lr-too-high"],
    "Activation saturation": ["saturated-units"],
    "Dead units": ["dead-units"],
    "Weight norm explosion": ["nonfinite-parameter", "lr-too-high"],
    "Stagnant weight norms": ["update-ratio-low", "lr-too-low", "frozen-parameter", "missing-step"],
    "Inter-layer weight norm": ["bad-initialization"],
    "Training divergence": ["loss-explosion", "lr-too-high", "nonfinite-loss"],
    "Loss plateau": ["loss-plateau"],
    "Catapult phase": ["loss-spike", "lr-too-high"],
    "Edge of stability": ["loss-oscillation", "lr-too-high"],
    "Rank collapse": ["constant-output"],
}
STATES = {
    "vanishing": ["gradient-vanishing"],
    "exploding": ["gradient-explosion"],
    "saturated": ["saturated-units"],
    "dead": ["dead-units"],
    "anomalous": ["nonfinite-activation"],
    "loss_plateau": ["loss-plateau"],
    "loss_spike": ["loss-spike"],
    "diverging": ["loss-explosion", "lr-too-high"],
    "nan_detected": NONFINITE,
    "inf_detected": NONFINITE,
    "distribution_shift": ["input-drift", "unnormalized-input"],
}
Said = list[tuple[str, list[str]]]
"""What a tool said, in its order, and the ids that this would be."""


@contextlib.contextmanager
def _outside(
    root: Callable[[nn.Module], None], loss: Callable[[float], None], step: Callable[[], None]
) -> Iterator[None]:
    """Calls `root` with every module that is called from outside, `loss` after a backward, `step` after a step."""
    call, backward = nn.Module.__call__, torch.Tensor.backward
    known: set[nn.Module] = set()

    def called(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        nn.Module.__call__ = call
        try:
            if self not in known and any(True for _ in self.parameters()):
                known.update(self.modules())
                root(self)
            return call(self, *args, **kwargs)
        finally:
            nn.Module.__call__ = called

    def backwards(self: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        backward(self, *args, **kwargs)
        if self.numel() == 1:
            loss(float(self.detach()))

    nn.Module.__call__, torch.Tensor.backward = called, backwards
    handle = register_optimizer_step_post_hook(lambda *_: step())
    try:
        yield
    finally:
        nn.Module.__call__, torch.Tensor.backward = call, backward
        handle.remove()


def anomaly(script: Path) -> Said:
    answer = localisation.anomaly(script)
    return [(answer["said"], NONFINITE)] if "op" in answer else []


def overflow(script: Path) -> Said:
    answer = localisation.overflow(script)
    return [(answer["said"], NONFINITE)] if "module" in answer else []


def torchmortem(script: Path) -> Said:
    from torchmortem import Autopsy
    from torchmortem.types import Severity

    every: list[Autopsy] = []
    last: dict[str, float] = {}

    def root(module: nn.Module) -> None:
        every.append(Autopsy(module))
        every[-1].attach()

    def step() -> None:
        for autopsy in every:
            autopsy.step(**last)

    with _outside(root, lambda value: last.update(loss=value), step):
        localisation.run(script)
    found = []
    for autopsy in every:
        autopsy.detach()
        report = autopsy.get_report()
        found += [finding for finding in report.findings if finding.severity >= Severity.WARNING] if report else []
    found.sort(key=lambda finding: -finding.severity)
    kinds: dict[str, list[str]] = {}
    for finding in found:
        kind = next((title for title in MORTEM if finding.title.startswith(title)), finding.title)
        kinds.setdefault(kind, MORTEM.get(kind, []))
    return list(kinds.items())


def neuraldbg(script: Path) -> Said:
    from neuraldbg import NeuralDbg

    every: list[NeuralDbg] = []

    def root(module: nn.Module) -> None:
        every.append(NeuralDbg(module))
        every[-1].__enter__()

    def loss(value: float) -> None:
        for dbg in every:
            dbg.record_loss(value)

    def step() -> None:
        for dbg in every:
            dbg.step_iteration()

    with _outside(root, loss, step):
        localisation.run(script)
    kinds: dict[str, list[str]] = {}
    for dbg in every:
        dbg.__exit__(None, None, None)
        for event in dbg.get_events():
            state = str(getattr(event.to_state, "value", event.to_state))
            if state in STATES:
                kinds.setdefault(state, STATES[state])
    return list(kinds.items())


def torchinstruments(script: Path) -> Said:
    from torchinstruments import EveryNForwardsSampler, inject_observer, remove_observer

    every: list[nn.Module] = []

    def root(module: nn.Module) -> None:
        inject_observer(module, sampler=EveryNForwardsSampler(10), output_dir=f"stats{len(every)}")
        every.append(module)

    with _outside(root, lambda value: None, lambda: None):
        localisation.run(script)
    said: Said = []
    for at, module in enumerate(every):
        remove_observer(module)
        for file in Path(f"stats{at}").rglob("history.parquet"):
            said += _nonfinite(file)
    return said[:1]


def _nonfinite(file: Path) -> Said:
    import polars

    table = polars.read_parquet(file)
    columns = [name for name in table.columns if "nonfinite" in name]
    bad = [name for name in columns if (table[name].fill_null(0) > 0).any()]
    return [(f"{bad[0]} above zero", NONFINITE)] if bad else []


WAYS: dict[str, Callable[[Path], Said]] = {
    "torchmortem": torchmortem,
    "neuraldbg": neuraldbg,
    "torchinstruments": torchinstruments,
    ANOMALY: anomaly,
    OVERFLOW: overflow,
}


def _answer(way: str, script: Path, end: Connection) -> None:
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            os.chdir(folder)  # some of them write files
            warnings.simplefilter("ignore")
            end.send({"said": WAYS[way](script)})
    except BaseException as error:
        end.send({"said": [], "failed": repr(error)[:300]})
    os._exit(0)  # nothing of the parent's is to be closed twice


def main(way: str, seconds: float, names: list[str]) -> None:
    torch.set_num_threads(1)
    torch.optim.SGD([nn.Parameter(torch.zeros(1))])  # the first optimizer of a process imports for two seconds
    with contextlib.suppress(ImportError):
        importlib.import_module({OVERFLOW: "transformers.debug_utils"}.get(way, way))
    forks = multiprocessing.get_context("fork")
    for name in names:
        here, there = forks.Pipe(duplex=False)
        process = forks.Process(target=_answer, args=(way, Path(name).resolve(), there))
        process.start()
        there.close()
        try:
            answer = here.recv() if here.poll(seconds) else {"said": [], "failed": f"no answer in {seconds:g} s"}
        except EOFError:
            answer = {"said": [], "failed": "the process ended"}
        process.kill()
        process.join()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
