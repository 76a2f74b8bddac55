"""Saves a bad step, so that it can be run again in another process: JSON and safetensors, no pickle.

`capture.json` says how everything hangs together, `tensors.safetensors` holds the numbers. What reads them is in
`again.py`.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import seismograd
from seismograd import folders
from seismograd.detectors.numerics.origins import FINDINGS
from seismograd.places import Spot, is_users
from seismograd.records import Origin, Reading, TensorStats, rank, strict, world_size
from seismograd.replay.glue import Glue
from seismograd.replay.numbers import is_bad
from seismograd.replay.packing import Packer, UnstorableError
from seismograd.replay.recorder import Call, Step
from seismograd.replay.second_runs import unwrapped
from seismograd.replay.surroundings import Randomness

SCHEMA = 1

MOST_CAPTURES = 3
"""Of one run, each of another kind of finding."""

LIMIT = 512
"""MiB: so large a capture may be, unless `SEISMOGRAD_CAPTURE_LIMIT` says otherwise."""

ASKED, MOST_ASKED = "asked", 10
"""What a capture is called that somebody asked for, and how many of one run there may be."""

RECOVERED, MOST_RECOVERED = "recovered", 5
"""What a capture is called on whose step a recovery acted, and how many of one run there may be."""

_LONGEST_SOURCE = 200_000

_TABLES = {"gradient": ("norm",), "nonfinite": None, "nonfinite_parameter": None}
"""What of a reading's tables its finding needs."""


class Captures:
    """The captures of one run: the first of each kind of finding. Nothing that goes wrong here reaches the training."""

    def __init__(
        self,
        run: str,
        *,
        note: Callable[[str], None],
        is_theirs: Callable[[Exception], bool] = lambda _: False,
        home: Path | None = None,
        limit: int | None = None,
    ) -> None:
        self._run, self._note, self._is_theirs = run, note, is_theirs
        self._home = home or folders.home()
        self._limit = _limit(note) if limit is None else limit
        self._kinds: set[str] = set()
        self._asked = self._recovered = 0

    def __call__(self, step: Step, models: Mapping[str, nn.Module], reading: Reading, origin: Origin) -> Origin:
        """Saves the step if it is worth it; the origin then says where (`facts["capture"]`), or why not."""
        kind = kind_of(reading, origin)
        if kind in self._kinds or len(self._kinds) >= MOST_CAPTURES:
            return origin
        if not origin.phase and (not step.calls or "amp-skipped" in reading.marks):
            return origin
        self._kinds.add(kind)
        facts: dict[str, Any] = {}
        try:
            taken = Snapshot(step, models, reading, origin, self._run)
            facts["capture"] = folders.shown(self._save(taken, kind))
            if taken.notes:
                facts["capture_note"] = taken.notes[0]
        except Exception as error:
            if self._is_theirs(error):
                raise
            facts["capture_note"] = f"the step was not saved: {_reason(error)}"
        if "capture_note" in facts:
            self._note(facts["capture_note"])
        return replace(origin, facts={**origin.facts, **facts})

    def recovered(self, step: Step, models: Mapping[str, nn.Module], reading: Reading) -> Path | None:
        """Saves a step on which a recovery acts, so that its batch can be looked at: the first few. It may raise."""
        if self._recovered >= MOST_RECOVERED:
            return None
        self._recovered += 1
        return self._save(
            Snapshot(step, models, reading, reading.origin or Origin("", sure=False), self._run), RECOVERED
        )

    def asked(self, step: Step, models: Mapping[str, nn.Module], reading: Reading) -> tuple[Path, list[str]]:
        """Saves a step that somebody wants to have, sound or not: where it is, and what is not in it. It may raise."""
        if self._asked >= MOST_ASKED:
            raise ValueError(f"{MOST_ASKED} steps of this run were saved on request already")
        origin = reading.origin or Origin("", note="everything was finite", sure=False)
        taken = Snapshot(step, models, reading, origin, self._run)
        path = self._save(taken, ASKED)
        self._asked += 1
        return path, taken.notes

    def _save(self, taken: Snapshot, kind: str) -> Path:
        packer, told = taken.packed(self._limit)
        folder = folders.made(self._home, self._run) / folders.folder_name(taken.reading.step, kind)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=folder.parent))
        try:
            if packer is not None:
                from safetensors.torch import save_file

                save_file(packer.contents(), draft / folders.TENSORS_FILE)
            text = json.dumps(strict({**told, "finding": kind}), indent=1, allow_nan=False)
            (draft / folders.JSON_FILE).write_text(text + "\n", encoding="utf-8")
            try:
                draft.replace(folder)
            except OSError:
                if world_size() < 2 or not folder.is_dir():
                    raise
                folder = folder.with_name(f"{folder.name}-rank-{rank()}")  # another rank has saved this step
                draft.replace(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return folder


class Snapshot:
    """All that is to be told of one step: its calls, what they were given, and how the models were."""

    def __init__(self, step: Step, models: Mapping[str, nn.Module], reading: Reading, origin: Origin, run: str) -> None:
        self.reading, self.origin, self._run = reading, origin, run
        self.notes: list[str] = []
        self._glues = list(step.glues)
        self._calls = _relevant(list(step.calls), self._glues)
        self._models = {name: unwrapped(model) for name, model in models.items()}
        self._roots = self._find_roots()
        self._paths = [{id(each): plain_name(name) for name, each in root.named_modules()} for root in self._roots]

    def _find_roots(self) -> list[nn.Module]:
        """The models whose modules were called, and called modules that are in no model; none inside another."""
        called = [unwrapped(call.module) for call in self._calls]
        roots: list[nn.Module] = []
        for module in called:
            owners = [model for model in self._models.values() if _holds(model, module)]
            root = owners[0] if owners else module
            if not any(root is known for known in roots):
                roots.append(root)
        return [root for root in roots if not any(_holds(other, root) for other in roots if other is not root)]

    def packed(self, limit: int) -> tuple[Packer | None, dict[str, Any]]:
        """Tensors and JSON, with less than there is if all of it is too much; without any tensors if even that is."""
        for whole in (True, False):
            packer = Packer()
            told = self._told(packer, whole)
            if packer.size <= limit * 2**20:
                break
        self.notes += packer.lost
        tensors: Packer | None = packer
        if packer.size > limit * 2**20:
            needed = -(-packer.size // 2**20)
            self.notes.insert(
                0,
                f"the tensors of the step take {needed} MiB, more than the {limit} MiB that a capture may: they were"
                f" not saved (SEISMOGRAD_CAPTURE_LIMIT={needed} allows it)",
            )
            tensors = None
        elif not whole:
            self.notes.append("outputs, and what is not of the watched model, were left out: the capture was too large")
        return tensors, {**told, "has_tensors": tensors is not None, "notes": self.notes}

    def _told(self, packer: Packer, whole: bool) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "seismograd": seismograd.__version__,
            "torch": torch.__version__,
            "captured": datetime.now(UTC).isoformat(timespec="seconds"),
            "environment": _environment(),
            "run": self._run,
            "step": self.reading.step,
            "rank": self.reading.rank,
            "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
            "reading": _reading_told(self.reading.plain()),
            "origin": origin_told(self.origin),
            "models": [
                {"name": name, **place} for name, model in self._models.items() if (place := self._place(model))
            ],
            "roots": [self._root(packer, at, whole) for at in range(len(self._roots))],
            "calls": [self._call(packer, at, call, whole) for at, call in enumerate(self._calls)],
            "passes": [
                {
                    "calls": [at for at, call in enumerate(self._calls) if _goes_through(glue, call)],
                    "losses": [_loss_told(loss) for loss in glue.losses],
                }
                for glue in self._glues
            ],
        }

    def _place(self, module: nn.Module) -> dict[str, Any] | None:
        for at, paths in enumerate(self._paths):
            if id(module) in paths:
                return {"root": at, "path": paths[id(module)]}
        return None

    def _root(self, packer: Packer, at: int, whole: bool) -> dict[str, Any]:
        root = self._roots[at]
        ours = any(call.ours and id(unwrapped(call.module)) in self._paths[at] for call in self._calls)
        name = next((name for name, model in self._models.items() if model is root), type(root).__name__)
        told = {"name": name, "class": class_name(root), "ours": ours, **_source_of(type(root))}
        state: dict[str, Any] = {}
        if ours or whole:
            for key, tensor in state_of(root).items():
                try:
                    state[key] = packer.tensor(tensor, f"root {at}/{key}")
                except UnstorableError as why:
                    state[key] = {"lost": str(why)}
                    packer.lost.append(f"{key} is a {why}, which cannot be stored")
        return {**told, "state": state, "complete": ours or whole}

    def _call(self, packer: Packer, at: int, call: Call, whole: bool) -> dict[str, Any]:
        module = unwrapped(call.module)
        paths = {id(each): plain_name(name) for name, each in module.named_modules()}
        buffers = {id(buffer): plain_name(name) for name, buffer in module.named_buffers()}
        told: dict[str, Any] = {
            **(self._place(module) or {}),
            "class": class_name(module),
            "ours": call.ours,
            "spot": _spot_told(call.spot),
            "training": {
                paths[id(each)]: training
                for each, training in zip(call.module.modules(), call.training, strict=False)
                if id(each) in paths
            },
            "autocast": {
                "cache": call.autocast.cache,
                "kinds": [[kind, on, str(dtype).removeprefix("torch.")] for kind, on, dtype in call.autocast.kinds],
            },
            "changed": call.changed(),
            "backward": call.backward,
        }
        if not (call.ours or whole):
            return {**told, "complete": False}
        name = f"call {at}"
        return {
            **told,
            "complete": True,
            "args": [packer.pack(value, f"{name}/args[{number}]") for number, value in enumerate(call.args)],
            "kwargs": {key: packer.pack(value, f"{name}/{key}") for key, value in call.kwargs.items()},
            "buffers": {
                buffers[id(buffer)]: packer.pack(copy, f"{name}/buffer {buffers[id(buffer)]}")
                for buffer, copy in call.buffers
                if id(buffer) in buffers
            },
            "randomness": _randomness_told(packer, call.randomness, name),
            "outputs": [
                {
                    "path": output.path,
                    "number": output.number,
                    "reached": output.reached,
                    "tensor": packer.pack(output.tensor, f"{name}/{output.path}") if whole else None,
                    "arrived": [
                        packer.pack(gradient, f"{name}/{output.path} gradient {turn}")
                        for turn, gradient in enumerate(output.arrived)
                    ],
                }
                for output in call.outputs
            ],
        }


def kind_of(reading: Reading, origin: Origin) -> str:
    """The id of the finding that tells of this step."""
    if origin.phase in FINDINGS:
        return FINDINGS[origin.phase]
    if "nonfinite_parameter" in reading.tensors:
        return FINDINGS["optimizer"]
    loss = reading.plain().scalars.get("loss", 0.0)
    return FINDINGS["backward" if math.isfinite(loss) else "loss"]


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, also those buffers that no state dict has; tied ones under each name."""
    found: dict[str, Tensor] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        found[plain_name(name)] = parameter
    for name, buffer in module.named_buffers(remove_duplicate=False):
        found[plain_name(name)] = buffer
    return found


def class_name(module: nn.Module) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"


def origin_told(origin: Origin) -> dict[str, Any]:
    """The origin as strict JSON."""
    told = {part.name: getattr(origin, part.name) for part in fields(origin)}
    told["where"] = origin.where.to_dict()
    told["inputs"] = [operand.to_dict() for operand in origin.inputs]
    result: dict[str, Any] = strict(told)
    return result


def _relevant(calls: list[Call], glues: list[Glue]) -> list[Call]:
    """The calls that some backward went through; all if there was none."""
    found = [call for call in calls if any(_goes_through(glue, call) for glue in glues)]
    return found or calls


def _goes_through(glue: Glue, call: Call) -> bool:
    return call in glue.into or (not glue.complete and any(output.reached for output in call.outputs))


def _holds(model: nn.Module, module: nn.Module) -> bool:
    return any(each is module for each in model.modules())


def plain_name(name: str) -> str:
    """Without what `torch.compile` and checkpoints put between."""
    return ".".join(part for part in name.split(".") if part not in ("_orig_mod", "_checkpoint_wrapped_module"))


def _loss_told(loss: Tensor) -> float:
    if loss.numel() == 1 and not loss.is_complex():
        return float(loss)
    return float("nan") if is_bad(loss) else 0.0


def _reading_told(reading: Reading) -> dict[str, Any]:
    return {
        "scalars": dict(reading.scalars),
        "marks": sorted(reading.marks),
        "tensors": {
            name: _table_told(table, columns)
            for name, columns in _TABLES.items()
            if (table := reading.tensors.get(name)) is not None
        },
    }


def _table_told(table: TensorStats, columns: tuple[str, ...] | None) -> dict[str, Any]:
    kept = {name: list(values) for name, values in table.columns.items() if columns is None or name in columns}
    return {"names": table.names, "columns": kept}


def _spot_told(spot: Spot | None) -> dict[str, Any] | None:
    if spot is None:
        return None
    return {"file": spot.file, "line": spot.line, "code": spot.source, "columns": spot.columns}


def _source_of(kind: type) -> dict[str, Any]:
    """Where the class stands, and its text if it is the user's."""
    told: dict[str, Any] = {"file": None, "line": None, "source": None}
    with suppress(OSError, TypeError):
        told["file"] = inspect.getsourcefile(kind)
        if told["file"] is not None and is_users(told["file"]):
            lines, told["line"] = inspect.getsourcelines(kind)
            text = "".join(lines)
            told["source"] = text if len(text) <= _LONGEST_SOURCE else None
    return told


def _randomness_told(packer: Packer, randomness: Randomness, name: str) -> dict[str, Any]:
    told: dict[str, Any] = {
        "torch": packer.tensor(randomness.torch, f"{name}/random torch"),
        "devices": [packer.tensor(state, f"{name}/random device {at}") for at, state in enumerate(randomness.devices)],
        "python": None,
        "numpy": None,
    }
    if randomness.python is not None:
        version, numbers, gauss = randomness.python
        state = torch.tensor(numbers, dtype=torch.int64)
        told["python"] = {"version": version, "gauss": gauss, "state": packer.tensor(state, f"{name}/random python")}
    if randomness.numpy is not None and randomness.numpy.get("bit_generator") == "MT19937":
        numpy = randomness.numpy
        state = torch.tensor(numpy["state"]["key"].tolist(), dtype=torch.int64)
        told["numpy"] = {
            "key": packer.tensor(state, f"{name}/random numpy"),
            "pos": int(numpy["state"]["pos"]),
            "has_gauss": int(numpy["has_gauss"]),
            "gauss": float(numpy["gauss"]),
        }
    return told


def _environment() -> dict[str, Any]:
    cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = {f"cuda:{at}": torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())} if cuda else {}
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "devices": devices,
        "threads": torch.get_num_threads(),
    }


def _limit(note: Callable[[str], None]) -> int:
    text = os.environ.get("SEISMOGRAD_CAPTURE_LIMIT", "").strip()
    if text.isdecimal():
        return int(text)
    if text:
        note(f"SEISMOGRAD_CAPTURE_LIMIT={text!r} is no whole number of MiB: {LIMIT} holds")
    return LIMIT


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename!r}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"
