"""`seismograd doctor`: it says what is there, what is not, and the line that installs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seismograd.cli import app, doctoring
from seismograd.cli.packages import TESTED, numbers, versions_document

ROOT = Path(__file__).parents[1]


def told(*arguments: str) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    result = CliRunner().invoke(app, ["doctor", "--json", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, {(each["part"], each["name"]): each for each in json.loads(result.stdout)["sights"]}


def test_it_sees_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEISMOGRAD_TOKEN", "very-secret")
    monkeypatch.chdir(tmp_path)
    code, sights = told("--store", str(tmp_path / "runs"))
    assert code == 0
    assert sights["needed", "torch"]["told"].startswith(metadata.version("torch"))
    assert sights["seen", "devices"]["state"] == "ok"
    assert "not made yet" in sights["seen", "store"]["told"]
    assert not (tmp_path / "runs").exists()  # it looks, and makes nothing
    assert list(tmp_path.glob(".seismograd-doctor-*")) == []
    assert sights["seen", "SEISMOGRAD_TOKEN"]["told"] == "set"
    assert ("disturbs", "lightning") in sights  # both trees are in the tests' environment


def test_what_is_missing_comes_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctoring, "_torch", lambda: iter(()))
    real = metadata.version

    def version(name: str) -> str:
        if name in ("wandb", "numpy", "lightning"):
            raise metadata.PackageNotFoundError(name)
        return "2.3.1" if name == "torch" else real(name)

    monkeypatch.setattr(metadata, "version", version)
    code, sights = told()
    assert code == 1
    assert (sights["extras", "wandb"]["state"], sights["extras", "wandb"]["hint"]) == (
        "missing",
        "pip install 'seismograd[wandb]'",
    )
    assert sights["extras", "lightning"]["state"] == "ok"  # its other name is there, and two would disturb
    assert "as pytorch-lightning" in sights["extras", "lightning"]["told"]
    assert sights["needed", "numpy"]["state"] == "broken"
    assert sights["needed", "torch"] | {"hint": ""} == {
        "part": "needed",
        "name": "torch",
        "state": "broken",
        "told": "2.3.1, 2.4 or newer is needed",
        "hint": "",
    }


def test_a_store_that_cannot_be_written_and_a_wrong_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctoring, "_torch", lambda: iter(()))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.seismograd]\nwrong = 1\n")
    code, sights = told("--store", "mysql://x/y")
    assert code == 1
    assert "cannot be kept in 'mysql'" in sights["seen", "store"]["told"]
    assert sights["seen", "config"]["state"] == "broken"


def test_a_network_file_system_and_a_folder_without_a_log_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctoring._can_log_ahead(tmp_path)
    assert not doctoring._can_log_ahead(tmp_path / "nowhere")
    monkeypatch.setattr(doctoring, "_file_system", lambda folder: "nfs4")
    monkeypatch.setattr(doctoring, "_can_log_ahead", lambda folder: False)
    sights: Iterator[doctoring.Sight] = doctoring._store(str(tmp_path / "runs"))
    warned = [each.told for each in sights if each.state == "warning"]
    assert any("network file system (nfs4)" in each for each in warned)
    assert any("write-ahead log" in each for each in warned)


def test_torch_that_cannot_be_imported_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctoring, "_ASK_TORCH", "raise ImportError('libcudart.so.12: cannot open')")
    (sight,) = doctoring._torch()
    assert (sight.state, sight.told) == ("broken", "it cannot be imported: ImportError: libcudart.so.12: cannot open")
    monkeypatch.setattr(doctoring, "_ASK_TORCH", "import time; time.sleep(60)")
    monkeypatch.setattr(doctoring, "SECONDS", 0.5)
    (sight,) = doctoring._torch()
    assert sight.state == "warning"


@pytest.mark.parametrize("name", ["numpy", "sqlalchemy", "psutil", "rich"])
def test_a_needed_package_that_cannot_be_imported_is_broken_and_the_rest_is_told(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").write_text("print('hello')\nraise ImportError('made for another ABI\\nand more')\n")
    (tmp_path / "torch.py").write_text("print('hello')\nraise ImportError('left out here')\n")
    source = str(Path(doctoring.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", "from seismograd.cli import main; main()", "doctor"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), source])},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (line,) = [each for each in done.stdout.splitlines() if each.strip().startswith(name) and "broken" in each]
    assert "but it cannot be imported: ImportError: made for another ABI: pip install --force-reinstall" in line
    assert "typer" in done.stdout


def test_what_a_package_prints_does_not_disturb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctoring, "_ASK_TORCH", f"print('hello', end='')\n{doctoring._ASK_TORCH}")
    (sight,) = doctoring._torch()
    assert (sight.name, sight.state) == ("devices", "ok")


def test_it_imports_nothing_heavy() -> None:
    program = (
        "import sys; sys.argv = ['seismograd', 'doctor', '--json']\n"
        "from seismograd.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'lightning', 'transformers', 'mlflow', 'wandb', 'tensorboard', 'diffusers', 'plotly'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_table_of_versions() -> None:
    assert (ROOT / "docs" / "versions.md").read_text() == versions_document(), "run: python docs/make_versions.py"
    assert all(numbers(each.tested) >= numbers(each.least) for each in TESTED)
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    assert {each.name: pinned.get(each.name) for each in TESTED} == {each.name: each.tested for each in TESTED}
    found = {each.name: (each.installed or "nothing").partition("+")[0] for each in TESTED}
    assert found == {each.name: each.tested for each in TESTED}  # all of them are really tested
    assert numbers("2.13.0+cpu") == (2, 13, 0) > numbers("2.4")


def test_the_oldest_asked_for_is_what_pip_is_asked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for each in TESTED:
        asked = [line.partition(">=") for line in (extras[each.extra] if each.extra else project["dependencies"])]
        floors = {name.partition("[")[0]: least for name, _, least in asked}
        assert floors[each.name] == each.least, each.name


def test_every_command_is_in_the_documents() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    names = [command.name or command.callback.__name__ for command in app.registered_commands]  # type: ignore[union-attr]
    assert [name for name in names if f"## `seismograd {name}" not in text] == []
