"""Runs a captured step again, with a model that is given. Nothing in a capture is executed, imported or unpickled."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seismograd import folders, patches
from seismograd.places import Spot, written
from seismograd.records import Operand, Origin, Reading, TensorStats, Where
from seismograd.replay.capture import SCHEMA, plain_name, state_of
from seismograd.replay.glue import Glue
from seismograd.replay.investigation import Investigation
from seismograd.replay.numbers import tensors_in
from seismograd.replay.packing import DTYPES, Unpacker, lost_in
from seismograd.replay.recorder import Call, Output, Step
from seismograd.replay.second_runs import unwrapped
from seismograd.replay.surroundings import Autocast, Randomness

_LARGEST_JSON = 256 * 2**20

_DAMAGED = (
    *(KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError),
    *(OverflowError, RecursionError, StopIteration, AssertionError),
)


class CaptureError(ValueError):
    """A capture that cannot be read or run; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a captured step's second run."""

    origin: Origin
    """The one found now; where there was none in the model, the one that was found in the run."""
    found: bool
    """Whether the second run came upon a value that is not finite."""
    same: bool
    """Whether it is the origin that was found in the run."""
    outside: bool
    """Whether the origin lies in code that cannot be run again: the loop's own, or a module that was not given."""
    notes: tuple[str, ...] = ()


def replay(path: str | os.PathLike[str], model: nn.Module) -> Origin:
    """Runs a captured step again with `model`, and says where the first value that is not finite was made.

    - `path`: the capture's folder (`evidence["capture"]` of a finding), the id of a run that has one capture, or how
      that id begins.
    - `model`: built as it was in the run. It gets the captured weights, buffers and flags for the second run, and has
      its own again afterwards.

    Returns the `Origin`: `phase`, `where` (module, op, file, line), what went into the op. Its `phase` is empty if
    everything was finite this time, as when the fault has been mended. If the fault was in the loop's own code, which
    cannot be run again, it is the origin as the run found it, and its `note` says so. A `ValueError` says what does
    not fit.
    """
    return rerun(Capture.load(folders.find(os.fspath(path))), model).origin


class Capture:
    """A captured step, as it was read from its folder."""

    def __init__(self, path: Path, told: Mapping[str, Any], tensors: Mapping[str, Tensor] | None) -> None:
        self.path, self.told, self._tensors = path, told, tensors
        self.notes: list[str] = []
        """What is not as it was in the run."""
        with self._damage():
            self.run, self.step, self.rank = str(told["run"]), int(told["step"]), int(told.get("rank", 0))
            self.finding = str(told["finding"])
            self.origin = _origin(told["origin"])
            self.reading = _reading(told["reading"], self.step, self.rank)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Capture:
        """Reads it, tensors and all; a `CaptureError` says what is wrong with it."""
        folder = Path(path)
        told = _read_json(folder / folders.JSON_FILE)
        if told.get("schema") != SCHEMA:
            raise CaptureError(
                f"{folders.shown(folder)} has schema {_short(told.get('schema'))}, this Seismograd reads {SCHEMA}: use"
                " the version that wrote it"
            )
        tensors = _read_tensors(folder / folders.TENSORS_FILE) if told.get("has_tensors") else None
        return Capture(folder, told, tensors)

    @contextmanager
    def _damage(self) -> Iterator[None]:
        try:
            yield
        except CaptureError:
            raise
        except _DAMAGED as error:
            text = f"no {error}" if isinstance(error, KeyError) else _short(str(error) or type(error).__name__)
            raise CaptureError(f"{folders.shown(self.path)} is damaged: {text}") from None

    # -- the model -----------------------------------------------------------------------------------------------

    def fitted(self, model: nn.Module) -> dict[int, nn.Module]:
        """Which of the modules that were called, by number, the given model provides; a `CaptureError` if none."""
        if not isinstance(model, nn.Module):
            raise CaptureError(f"the model is {model!r}, not an nn.Module")
        if self._tensors is None:
            why = next(iter(self.told.get("notes") or ()), "it was too large")
            raise CaptureError(f"{folders.shown(self.path)} holds no tensors, so it cannot be run again: {why}")
        model = unwrapped(model)
        with self._damage():
            roots = list(self.told["roots"])
            ours = [at for at, root in enumerate(roots) if root["ours"]] or list(range(len(roots)))
            inside = dict(_parts(model))
            found = {
                at: inside[root["name"]]
                for at, root in enumerate(roots)
                if len(roots) > 1 and root["name"] and root["name"] in inside and _fits(inside[root["name"]], root)
            }
            if not found:
                alike = [at for at in ours if _kind(roots[at]) == type(model).__name__]
                fitting = [at for at in ours if _fits(model, roots[at])]
                at = self._guilty(fitting or alike or (ours if len(ours) == 1 else []))
                if at is None:
                    names = ", ".join(f"{root['name'] or 'model'} ({_kind(root)})" for root in roots)
                    raise CaptureError(
                        f"{type(model).__name__} is none of the modules that were called in the step: {names}. Give"
                        " one of them, or an nn.ModuleDict that has them by these names"
                    )
                self._check_state(model, roots[at])
                found = {at: model}
        return found

    def _guilty(self, roots: list[int]) -> int | None:
        """The one in which the origin lies, else the first."""
        module = self.origin.where.module or ""
        names = {at: str(self.told["roots"][at]["name"]) for at in roots}
        return next((at for at in roots if module.partition(".")[0] == names[at]), next(iter(roots), None))

    def _check_state(self, model: nn.Module, root: Mapping[str, Any]) -> None:
        """That the model has just the weights that were stored."""
        mine, stored = state_of(model), root["state"]
        missing = [name for name in mine if name not in stored]
        unknown = [name for name in stored if name not in mine]
        other = [
            f"{name} is {_shape(stored[name])} in the capture and {tuple(mine[name].shape)} in the model"
            for name in stored
            if name in mine and not _agree(mine[name], stored[name])
        ]
        problems = []
        if unknown:
            problems.append(f"the model has no {_few(unknown)}")
        if missing:
            problems.append(f"the capture has no {_few(missing)}")
        problems += other[:3]
        if problems:
            raise CaptureError(
                f"{type(model).__name__} does not fit the captured {_kind(root)}: {'; '.join(problems)}. Build it as it"
                " was built in the run"
            )

    # -- the step ------------------------------------------------------------------------------------------------

    def recorded(self, given: Mapping[int, nn.Module]) -> Step:
        """The calls of the step as a recorder would have them now, as far as their modules are given."""
        unpacker = Unpacker(self._tensors or {}, self._device)
        calls: dict[int, Call] = {}
        with self._damage():
            for at, told in enumerate(self.told["calls"]):
                call = self._call(told, given, unpacker)
                if call is not None:
                    calls[at] = call
            passes = self.told["passes"] or [{"calls": list(calls), "losses": []}]
            step = Step(list(calls.values()))
            for each in passes:
                glue = Glue([])
                glue.into = {calls[int(at)]: [] for at in each["calls"] if int(at) in calls}
                glue.losses = [torch.tensor(_number(loss), dtype=torch.float32) for loss in each["losses"]]
                glue.starts = [("none", None) for _ in glue.losses]
                step.glues.append(glue)
        return step

    def models(self, given: Mapping[int, nn.Module]) -> dict[str, nn.Module]:
        """The watched models by the names that they had."""
        with self._damage():
            found = {}
            for told in self.told["models"]:
                if told["root"] in given:
                    found[str(told["name"])] = dict(_parts(given[told["root"]]))[told["path"]]
            return found

    def state(self, at: int) -> dict[str, Tensor]:
        """The weights and buffers of a module as they were."""
        unpacker = Unpacker(self._tensors or {}, self._device)
        with self._damage():
            stored = self.told["roots"][at]["state"]
            lost = [f"{name} ({told['lost']})" for name, told in stored.items() if "lost" in told]
            if lost:
                raise CaptureError(f"not all weights could be stored: {_few(lost)}")
            return {name: unpacker.tensor(told) for name, told in stored.items()}

    @property
    def default_dtype(self) -> torch.dtype:
        with self._damage():
            dtype = DTYPES[self.told["default_dtype"]]
            return dtype if dtype.is_floating_point else torch.float32

    def _call(self, told: Mapping[str, Any], given: Mapping[int, nn.Module], unpacker: Unpacker) -> Call | None:
        """One call; `None`, and a note, if it cannot be made again."""
        spot = _spot(_printable(told["spot"]))
        name = f"the call of {_kind(told)}" + (f" at {written(spot.file, spot.line)}" if spot else "")
        if told.get("root") not in given:
            self.notes.append(f"{name} is left out: the model does not provide that module")
            return None
        if not told["complete"]:
            self.notes.append(f"{name} is left out: it was not saved")
            return None
        if told["changed"]:
            self.notes.append(f"{name} is left out: its input was changed in place before it could be saved")
            return None
        module = dict(_parts(given[told["root"]])).get(told["path"])
        if module is None or (told["path"] and type(module).__name__ != _kind(told)):
            self.notes.append(f"{name} is left out: the model has no such module at {told['path']!r}")
            return None
        args = tuple(unpacker.value(value) for value in told["args"])
        kwargs = {str(key): unpacker.value(value) for key, value in told["kwargs"].items()}
        lost = lost_in((args, kwargs))
        if lost:
            self.notes.append(f"{name} is left out: an argument could not be stored ({_few(lost)})")
            return None
        buffers = {plain_name(key): buffer for key, buffer in module.named_buffers()}
        return Call(
            module,
            args,
            kwargs,
            [(tensor, tensor._version) for _, tensor in tensors_in((args, kwargs))],
            self._randomness(told["randomness"], unpacker),
            self._autocast(told["autocast"]),
            [bool(told["training"].get(path, each.training)) for path, each in _parts(module)],
            [
                (buffers[key], _shaped(unpacker.tensor(value), buffers[key]))
                for key, value in told["buffers"].items()
                if key in buffers
            ],
            (spot,) if spot is not None else (),
            bool(told["ours"]),
            [
                Output(
                    str(one["path"]),
                    None if one["tensor"] is None else unpacker.tensor(one["tensor"]).detach(),
                    number=int(one["number"]),
                    arrived=[unpacker.tensor(gradient).detach() for gradient in one["arrived"]],
                    reached=bool(one["reached"]),
                )
                for one in told["outputs"]
            ],
            backward=int(told["backward"]),
        )

    def _device(self, name: str) -> torch.device:
        """The same device if it is there, else the CPU."""
        kind, _, number = name.partition(":")
        if kind == "cuda" and torch.cuda.is_available() and int(number or 0) < torch.cuda.device_count():
            return torch.device(name)
        if kind != "cpu":
            self._remark(f"the step ran on {kind}, and runs on the CPU now: numbers may differ")
        return torch.device("cpu")

    def _autocast(self, told: Mapping[str, Any]) -> Autocast:
        kinds: dict[str, tuple[str, bool, torch.dtype]] = {}
        for kind, enabled, dtype in told["kinds"]:
            here = kind if kind == "cpu" or (kind == "cuda" and torch.cuda.is_available()) else "cpu"
            if enabled or here not in kinds:
                kinds[here] = (here, bool(enabled), DTYPES[dtype])
        return Autocast(tuple(kinds.values()), bool(told["cache"]))

    def _randomness(self, told: Mapping[str, Any], unpacker: Unpacker) -> Randomness:
        made = Randomness(unpacker.tensor(told["torch"]).cpu())
        if told["devices"]:
            if torch.cuda.is_available() and torch.cuda.device_count() == len(told["devices"]):
                torch.cuda.init()  # type: ignore[no-untyped-call]
                made.devices = tuple(unpacker.tensor(state).cpu() for state in told["devices"])
            else:
                self._remark("the random numbers of the GPU cannot be drawn here: dropout will differ")
        if told["python"] is not None:
            numbers = tuple(unpacker.tensor(told["python"]["state"]).tolist())
            made.python = (int(told["python"]["version"]), numbers, told["python"]["gauss"])
        if told["numpy"] is not None and (numpy := _numpy()) is not None:
            state, told = numpy.random.get_state(legacy=False), told["numpy"]
            if state["bit_generator"] == "MT19937":
                key = numpy.asarray(unpacker.tensor(told["key"]).tolist(), dtype=numpy.uint32)
                if key.shape != (624,) or not 0 <= int(told["pos"]) <= 624:
                    raise ValueError("the state of NumPy's random numbers is none")
                state["state"] = {"key": key, "pos": int(told["pos"])}
                state["has_gauss"], state["gauss"] = int(told["has_gauss"]), _number(told["gauss"])
                made.numpy = state
        _try_out(made)
        return made

    def _remark(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def rerun(capture: Capture, model: nn.Module) -> Replayed:
    """Runs the step again, and compares what is found with what was found in the run."""
    given = capture.fitted(model)
    with _lent({module: capture.state(at) for at, module in given.items()}), _default(capture.default_dtype):
        step = capture.recorded(given)
        if not step.calls:
            raise CaptureError("; ".join(["no call of the step can be made again", *capture.notes]))
        scalars = capture.reading.scalars
        listener = _Nobody()
        patches.listen(listener)  # modules tell of their calls only while somebody listens
        try:
            origin = Investigation(
                step,
                capture.models(given),
                finite_loss=math.isfinite(scalars.get("loss", 0.0)),
                scale=scalars.get("amp/scale") or 1.0,
            ).origin()
        finally:
            patches.forget(listener)
    return _judged(capture, origin)


def _judged(capture: Capture, origin: Origin) -> Replayed:
    stored, found = capture.origin, bool(origin.phase)
    same = found and _essence(origin) == _essence(stored)
    outside = stored.phase in ("input", "loss", "optimizer") or (bool(stored.phase) and stored.where.module is None)
    if outside and not same and origin.phase in ("", "input"):
        why = "the model itself is clean: this was found in the run, outside of what can be run again"
        origin = replace(stored, note=f"{stored.note}; {why}" if stored.note else why)
    else:
        outside = origin.phase == "input"
    return Replayed(origin, found, same, outside, tuple(_printable(note) for note in capture.notes))


def _essence(origin: Origin) -> tuple[Any, ...]:
    """What makes two origins the same one, whatever lines were added above it since."""
    where = origin.where
    code = where.code.strip() if where.code else None
    return (origin.phase, where.module, where.parameter, where.op, origin.forward_op, code)


# -- what a second run needs around it ---------------------------------------------------------------------------------


class _Nobody:
    """Listens and hears nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._ignore

    def _ignore(self, *_: Any, **__: Any) -> None: ...


@contextmanager
def _lent(states: Mapping[nn.Module, Mapping[str, Tensor]]) -> Iterator[None]:
    """The captured weights and buffers in the given modules; afterwards they have their own again."""
    before: dict[int, tuple[Tensor, Tensor, bool]] = {}
    try:
        for module, state in states.items():
            for name, own in state_of(module).items():
                if id(own) in before:  # tied
                    continue
                stored = state[name]
                if isinstance(own, (nn.UninitializedParameter, nn.UninitializedBuffer)):
                    own.materialize(tuple(stored.shape))
                before[id(own)] = (own, own.data, own.requires_grad)
                own.data = stored.detach()
                if isinstance(own, nn.Parameter):
                    own.requires_grad_(stored.requires_grad)
        yield
    finally:
        for own, data, requires_grad in before.values():
            own.data = data
            if isinstance(own, nn.Parameter):
                own.requires_grad_(requires_grad)


@contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _try_out(randomness: Randomness) -> None:
    """That the generators take these states; they keep their own."""
    before = Randomness.now()
    try:
        randomness.restore()
    finally:
        before.restore()


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy


# -- what is in the files ----------------------------------------------------------------------------------------------


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > _LARGEST_JSON:
            raise CaptureError(f"{folders.shown(path)} is damaged: it is larger than any capture")
        told = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
        if not isinstance(told, dict):
            raise ValueError("it holds no object")
        return {key: value if key == "calls" else _printable(value) for key, value in told.items()}
    except OSError as error:
        raise CaptureError(f"{folders.shown(path)} cannot be read: {error.strerror or error}") from None
    except CaptureError:
        raise
    except (ValueError, RecursionError) as error:
        raise CaptureError(f"{folders.shown(path)} is damaged: {_short(str(error))}") from None


def _printable(value: Any) -> Any:
    """The same without control characters, which a terminal might obey."""
    if isinstance(value, str):
        return value if value.isprintable() else _CONTROL.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, list):
        return [_printable(item) for item in value]
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    return value


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except OSError as error:
        raise CaptureError(f"{folders.shown(path)} cannot be read: {error.strerror or error}") from None
    except (SafetensorError, RuntimeError, ValueError, KeyError) as error:
        raise CaptureError(f"{folders.shown(path)} is damaged: {_short(str(error))}") from None


@dataclass(frozen=True, slots=True)
class _KeptSpot(Spot):
    """A spot of the process in which the step was captured."""

    kept: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def line(self) -> int:
        return int(self.kept["line"])

    @property
    def file(self) -> str:
        return str(self.kept["file"])

    @property
    def source(self) -> str | None:
        return self.kept["code"] if isinstance(self.kept["code"], str) else None

    @property
    def columns(self) -> tuple[int, int] | None:
        columns = self.kept["columns"]
        return None if columns is None else (int(columns[0]), int(columns[1]))


def _spot(told: Any) -> Spot | None:
    if told is None:
        return None
    spot = _KeptSpot(_spot.__code__, -1, dict(told))
    assert isinstance(spot.columns, (tuple, type(None)))
    assert spot.line >= 0
    return spot


def _origin(told: Mapping[str, Any]) -> Origin:
    where = {str(name): value for name, value in told["where"].items()}
    if not all(value is None or isinstance(value, int if name == "line" else str) for name, value in where.items()):
        raise ValueError("the place of the origin is none")
    return Origin(
        phase=str(told["phase"]),
        where=Where(**where),
        forward_op=told["forward_op"],
        columns=None if told["columns"] is None else (int(told["columns"][0]), int(told["columns"][1])),
        value=_number(told["value"]),
        bad=int(told["bad"]),
        size=int(told["size"]),
        index=tuple(tuple(int(at) for at in index) for index in told["index"]),
        shape=tuple(int(size) for size in told["shape"]),
        dtype=told["dtype"],
        inputs=tuple(
            Operand(**{**operand, "shape": tuple(operand["shape"]), **_range(operand)}) for operand in told["inputs"]
        ),
        arguments=dict(told["arguments"]),
        facts=dict(told["facts"]),
        sure=bool(told["sure"]),
        note=told["note"],
    )


def _range(operand: Mapping[str, Any]) -> dict[str, float | None]:
    return {end: None if operand[end] is None else _number(operand[end]) for end in ("low", "high")}


def _reading(told: Mapping[str, Any], step: int, rank: int) -> Reading:
    tables = {
        str(name): TensorStats(
            tuple(str(each) for each in table["names"]),
            {str(column): [_number(value) for value in values] for column, values in table["columns"].items()},
        )
        for name, table in told["tensors"].items()
    }
    for table in tables.values():
        if any(len(values) != len(table.names) for values in table.columns.values()):
            raise ValueError("a table of the reading has columns of another length than its names")
    scalars = {str(name): _number(value) for name, value in told["scalars"].items()}
    return Reading(step, scalars, tables, rank, frozenset(str(mark) for mark in told["marks"]))


def _number(value: Any) -> float:
    if isinstance(value, str):
        return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}[value]
    return float(value)


def _parts(module: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(plain_name(path), each) for path, each in module.named_modules()]


def _shaped(stored: Tensor, own: Tensor) -> Tensor:
    if stored.shape != own.shape:
        raise ValueError(f"a buffer of shape {tuple(own.shape)} cannot have been of {tuple(stored.shape)}")
    return stored.to(own.device)


def _kind(told: Mapping[str, Any]) -> str:
    """The name of a class without its module, which is `__main__` in a script and another elsewhere."""
    return str(told["class"]).rpartition(".")[2]


def _fits(module: nn.Module, root: Mapping[str, Any]) -> bool:
    mine, stored = state_of(module), root["state"]
    return bool(root["complete"]) and mine.keys() == stored.keys() and all(_agree(mine[n], stored[n]) for n in stored)


def _agree(tensor: Tensor, told: Mapping[str, Any]) -> bool:
    lazy = isinstance(tensor, (nn.UninitializedParameter, nn.UninitializedBuffer))
    return lazy or "lost" in told or tuple(tensor.shape) == tuple(told["tensor"]["shape"])


def _shape(told: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(told["tensor"]["shape"])


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
