"""The package as a whole: what importing costs, what it exports, what it ships."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

import seismograd

ROOT = Path(__file__).parents[1]

TORCH_FREE = [
    "activations",
    "cli",
    "cli.demos",
    "detectors",
    "errors",
    "history",
    "judge",
    "logger",
    "protocols",
    "records",
    "reports",
    "reports.figures",
    "reports.pages",
    "reports.report",
    "reports.terminal",
    "sinks",
    "stats.arrays",
    "steps",
]


def modules_after(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after `statement`."""
    program = f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_it_imports_nothing_heavy() -> None:
    heavy = {"torch", "numpy", "plotly", "rich", "typer", "psutil"}
    assert not heavy & modules_after("import seismograd; dir(seismograd)")


@pytest.mark.parametrize("module", TORCH_FREE)
def test_what_never_touches_torch_does_not_import_it(module: str) -> None:
    assert "torch" not in modules_after(f"import seismograd.{module}")


def test_the_names_are_sorted_and_each_loads() -> None:
    assert seismograd.__all__ == sorted(set(seismograd.__all__))
    for name in seismograd.__all__:
        assert getattr(seismograd, name) is not None
    assert set(seismograd.__all__) <= set(dir(seismograd))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'wach'"):
        seismograd.wach  # type: ignore[attr-defined]


def test_the_version_is_that_of_the_package() -> None:
    assert seismograd.__version__ == version("seismograd")


def test_the_console_script_is_there() -> None:
    (script,) = entry_points(group="console_scripts", name="seismograd")
    assert script.value == "seismograd.cli:main"


@pytest.mark.slow
def test_the_wheel_ships_types_licence_and_examples(tmp_path: Path) -> None:
    build = "import setuptools.build_meta as b, sys; print(b.build_wheel(sys.argv[1]))"
    copy = tmp_path / "source"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "src", "examples"):  # builds litter: not in the checkout
        subprocess.run(["cp", "-a", ROOT / name, copy / name], check=True)
    done = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"seismograd/py.typed", "seismograd/examples/sick/nan.py", "seismograd/examples/healthy/mlp.py"} <= names
    assert any(name.endswith("LICENSE") for name in names)
    assert not any(name.startswith(("tests", "examples", "benchmarks")) for name in names)
