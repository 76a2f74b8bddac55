"""`seismograd doctor`: what is installed, what is seen, what is missing, and the line that installs it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import typer

import seismograd
from seismograd.cli.packages import TESTED, numbers
from seismograd.cli.stores import AsJson, Where, say_json, terminal

SECONDS = 60.0
"""So long torch may take to say what it sees."""
_NETWORKS = ("nfs", "cifs", "smb", "sshfs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "afs")
_LITTLE = 1 << 30
_SECRET = ("TOKEN", "NOTIFY")

_ASK_TORCH = """
import json, torch
cuda = torch.cuda.is_available()
print()
print(json.dumps({
    "version": torch.__version__,
    "cuda": torch.version.cuda,
    "devices": [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())] if cuda else [],
    "mps": bool(getattr(torch.backends, "mps", None) and torch.backends.mps.is_available()),
    "threads": torch.get_num_threads(),
}))
"""

_IMPORT = """
import importlib, json, sys
errors = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        errors[name] = f"{type(error).__name__}: {error}"
print()
print(json.dumps(errors))
"""


@dataclass(frozen=True, slots=True)
class Sight:
    """One thing that was looked at: `ok`, `missing` (and not needed), `warning`, or `broken`."""

    part: str
    name: str
    state: str
    told: str
    hint: str = ""


def doctor(store: Where = None, as_json: AsJson = False) -> None:
    """Say what is installed, what is seen, what is missing, and the line that installs it.

    Exits with 0 unless something that is needed is broken.
    """
    looks = (
        _here(),
        _packages(),
        _torch(),
        _disturbances(),
        _tried("store", _store(store)),
        _tried("config", _settings()),
    )
    sights = [each for look in looks for each in look]
    broken = [each for each in sights if each.state == "broken"]
    if as_json:
        say_json({"healthy": not broken, "sights": [asdict(each) for each in sights]})
    else:
        _print(sights)
    if broken:
        raise typer.Exit(1)


def _tried(name: str, look: Iterator[Sight]) -> Iterator[Sight]:
    """What there is to see; and that it cannot be looked at, as where a package is broken that is needed for it."""
    try:
        yield from look
    except Exception as error:
        yield Sight("seen", name, "broken", f"it cannot be looked at: {_in_a_line(error)}")


def _in_a_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def _here() -> Iterator[Sight]:
    yield Sight("here", "seismograd", "ok", f"{seismograd.__version__} in {Path(seismograd.__file__).parent}")
    enough = sys.version_info >= (3, 11)
    yield Sight(
        *("here", "python", "ok" if enough else "broken"),
        f"{platform.python_version()} in {sys.executable}",
        "" if enough else "Python 3.11 or newer is needed",
    )
    yield Sight("here", "system", "ok", f"{platform.system()} {platform.release()} {platform.machine()}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = ""
    with contextlib.suppress(Exception):
        import psutil

        from seismograd.amounts import size

        memory = f", {size(psutil.virtual_memory().total)} of memory, {size(psutil.virtual_memory().available)} free"
    yield Sight("here", "machine", "ok", f"{cores} cores{memory}")


def _packages() -> Iterator[Sight]:
    errors = _import_errors()
    for each in TESTED:
        found, part = each.installed, "needed" if each.extra is None else "extras"
        other = _version("pytorch-lightning") if each.name == "lightning" else None
        if found is None and other is not None:
            yield Sight(part, each.name, "ok", f"{other}, as pytorch-lightning")
        elif found is None:
            yield Sight(part, each.name, "broken" if each.extra is None else "missing", "not installed", each.line)
        elif numbers(found) < numbers(each.least):
            state = "broken" if each.extra is None else "warning"
            yield Sight(part, each.name, state, f"{found}, {each.least} or newer is needed", each.line)
        elif each.name in errors:
            told, line = f"{found}, but it cannot be imported: {errors[each.name]}", "pip install --force-reinstall"
            yield Sight(part, each.name, "broken", told, f"{line} {each.name}")
        else:
            yield Sight(
                part,
                each.name,
                "ok",
                found if found.partition("+")[0] == each.tested else f"{found} (tested: {each.tested})",
            )


def _import_errors() -> dict[str, str]:
    """What is installed and needed, but cannot be imported. Of torch, the slowest, see below."""
    names = [each.name for each in TESTED if each.extra is None and each.installed and each.name != "torch"]
    with contextlib.suppress(OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [sys.executable, "-c", _IMPORT, *names], capture_output=True, text=True, timeout=SECONDS, check=False
        )
        errors = json.loads(done.stdout.splitlines()[-1])
        return {name: str(error).partition("\n")[0] for name, error in errors.items()}
    return {}


def _torch() -> Iterator[Sight]:
    """What torch sees, asked in a process of its own: it may take its time, or not come back."""
    if next(each for each in TESTED if each.name == "torch").installed is None:
        return
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK_TORCH], capture_output=True, text=True, timeout=SECONDS, check=False
        )
        told = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
    except subprocess.TimeoutExpired:
        yield Sight("seen", "devices", "warning", f"torch did not answer within {SECONDS:.0f} s")
        return
    except (OSError, ValueError, IndexError):
        told = None
        done = subprocess.CompletedProcess([], 1, "", "it said nothing that can be read")
    if told is None:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        yield Sight("seen", "torch", "broken", f"it cannot be imported: {last}", "install torch anew")
        return
    devices = told["devices"] or (["mps"] if told["mps"] else [])
    cuda = f", built for CUDA {told['cuda']}" if told["cuda"] else ", built without CUDA"
    yield Sight("seen", "devices", "ok", f"{', '.join(devices) or 'the processor alone'}{cuda}")


def _disturbances() -> Iterator[Sight]:
    if _version("lightning") and _version("pytorch-lightning"):
        yield Sight(
            *("disturbs", "lightning", "warning", "lightning and pytorch-lightning are both installed"),
            "classes of one are none of the other: import from one of them only",
        )
    for name in ("torchvision", "torchaudio"):
        wanted = _wanted_torch(name)
        if wanted and wanted != str(_version("torch")).partition("+")[0]:
            yield Sight(
                *("disturbs", name, "warning", f"it was built for torch {wanted}, {_version('torch')} is installed"),
                f"install the {name} that belongs to your torch",
            )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _wanted_torch(name: str) -> str | None:
    """The torch that a package was built for."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        for need in metadata.requires(name) or ():
            if need.replace(" ", "").startswith("torch=="):
                return need.replace(" ", "").removeprefix("torch==").partition(";")[0]
    return None


def _store(where: str | None) -> Iterator[Sight]:
    from seismograd.amounts import size
    from seismograd.store import StoreError
    from seismograd.store.schema import file_of, shown, url_of
    from seismograd.store.store import place

    try:
        url = url_of(place(where))
    except (StoreError, ValueError) as error:
        yield Sight("seen", "store", "broken", str(error))
        return
    path = file_of(url)
    if path is None:
        there = _version("psycopg") is not None
        hint = "" if there else "pip install 'seismograd[postgres]'"
        yield Sight("seen", "store", "ok" if there else "broken", f"{shown(url)} (it is not connected to)", hint)
        return
    folder = next((each for each in (path.parent, *path.parent.parents) if each.exists()), Path("/"))
    told = f"{shown(url)}, {size(path.stat().st_size)}" if path.exists() else f"{shown(url)}, not made yet"
    writable = os.access(path if path.exists() else folder, os.W_OK) and os.access(folder, os.W_OK)
    hint = "" if writable else "give another place: SEISMOGRAD_STORE, or --store"
    yield Sight("seen", "store", "ok" if writable else "broken", told + ("" if writable else ", not writable"), hint)
    kind = _file_system(folder)
    if any(word in kind for word in _NETWORKS):
        yield Sight(
            *("disturbs", "store", "warning", f"it lies on a network file system ({kind})"),
            "SQLite is slow and may be damaged there: give a local folder, or postgresql://",
        )
    if writable and not _can_log_ahead(folder):
        yield Sight(
            *("disturbs", "store", "warning", f"SQLite cannot keep a write-ahead log in {folder}"),
            "readers then wait for writers: give a folder on a local disk",
        )
    free = shutil.disk_usage(folder).free
    yield Sight(
        *("seen", "disk", "ok" if free > _LITTLE else "warning", f"{size(free)} free in {folder}"),
        "" if free > _LITTLE else "a run may take 200 MB: SEISMOGRAD_STORE_LIMIT=50 makes it less",
    )


def _file_system(folder: Path) -> str:
    with contextlib.suppress(Exception):
        import psutil

        mounts = [each for each in psutil.disk_partitions(all=True) if folder.resolve().is_relative_to(each.mountpoint)]
        return str(max(mounts, key=lambda each: len(each.mountpoint)).fstype).lower()
    return ""


def _can_log_ahead(folder: Path) -> bool:
    try:
        with (
            tempfile.TemporaryDirectory(prefix=".seismograd-doctor-", dir=folder) as place,
            contextlib.closing(sqlite3.connect(Path(place) / "try.db")) as connection,
        ):
            mode = connection.execute("pragma journal_mode=wal").fetchone()[0]
            connection.execute("create table tried (x)")
            return bool(mode == "wal")
    except (OSError, sqlite3.Error):
        return False


def _settings() -> Iterator[Sight]:
    from seismograd.config import find_config
    from seismograd.masking import without_secrets

    try:
        path = find_config().path
        yield Sight("seen", "config", "ok", str(path) if path else "no pyproject.toml with [tool.seismograd]")
    except ValueError as error:
        yield Sight("seen", "config", "broken", str(error))
    for name in sorted(each for each in os.environ if each.startswith("SEISMOGRAD_")):
        secret = any(word in name for word in _SECRET)
        yield Sight("seen", name, "ok", "set" if secret else without_secrets(os.environ[name]))


_STYLES = {"ok": "green", "missing": "dim", "warning": "bold yellow", "broken": "bold red"}
_PARTS = {
    "here": "here",
    "needed": "what is needed",
    "extras": "what is extra",
    "seen": "what is seen",
    "disturbs": "what may disturb",
}


def _print(sights: list[Sight]) -> None:
    try:
        from rich.text import Text

        console = terminal()
    except Exception:  # it may be what is broken
        _print_plainly(sights)
        return
    width = max(len(each.name) for each in sights)
    for part, title in _PARTS.items():
        own = [each for each in sights if each.part == part]
        if not own:
            continue
        console.print(Text(title, "bold"))
        for each in own:
            line = Text.assemble(f"  {each.name:{width}}  ", (f"{each.state:7}", _STYLES[each.state]), f"  {each.told}")
            console.print(line + Text(f": {each.hint}" if each.hint else ""), soft_wrap=True)
    console.print()
    console.print(Text(_summary(sights)))


def _print_plainly(sights: list[Sight]) -> None:
    for each in sights:
        typer.echo(f"{each.name}: {each.state}: {each.told}" + (f": {each.hint}" if each.hint else ""))
    typer.echo(_summary(sights))


def _summary(sights: list[Sight]) -> str:
    counts = {state: sum(each.state == state for each in sights) for state in _STYLES}
    told = ", ".join(f"{counts[state]} {state}" for state in ("broken", "warning", "missing") if counts[state])
    return f"seismograd: {told or 'all is there'}"
