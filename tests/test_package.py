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
    "logs",
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
    "testing",
]


def modules_after(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after `statement`."""
    program = (
        "import sys, atexit; atexit.register(lambda: print(*{name.partition('.')[0] for name in sys.modules})); "
        + statement
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_it_imports_nothing_heavy() -> None:
    heavy = {"torch", "numpy", "plotly", "rich", "typer", "psutil"}
    assert not heavy & modules_after("import seismograd; dir(seismograd)")


FRAMEWORKS = {"accelerate", "diffusers", "ignite", "lightning", "peft", "pytorch_lightning", "transformers"}
OPTIONAL = FRAMEWORKS | {
    "IPython",
    "mcp",
    "mkdocs",
    "mlflow",
    "opentelemetry",
    "prometheus_client",
    "psycopg",
    "tensorboard",
    "trackio",
    "wandb",
}
BRINGS = {  # what a framework imports by itself
    "lightning": {"lightning", "transformers"},
    "transformers": {"transformers", "accelerate", "peft"},
    "accelerate": {"accelerate"},
    "ignite": set(),
    "diffusion.debugger": set(),
    "watching": set(),
}


@pytest.mark.parametrize(
    "statement",
    [
        "import seismograd; dir(seismograd)",
        "import seismograd.cli; sys.argv[1:] = ['--version']; seismograd.cli.main()",
        "import seismograd; [getattr(seismograd, n) for n in seismograd.__all__]",
        "from seismograd.sinks import JSONLines, MLflow, OpenTelemetry, Prometheus, TensorBoard, Trackio, WandB",
        "import seismograd.logs, seismograd.testing, seismograd.testing.plugin, seismograd.mcp_server",
    ],
    ids=["package", "version", "names", "sinks", "others"],
)
def test_no_optional_package_is_imported_before_it_is_used(statement: str) -> None:
    assert not OPTIONAL & modules_after(statement)


@pytest.mark.parametrize("module", BRINGS)
def test_the_module_of_a_framework_imports_no_other(module: str) -> None:
    assert OPTIONAL & modules_after(f"import seismograd.integrations.{module}") <= BRINGS[module]


MISSING = """
import sys
for name in ("accelerate", "ignite", "lightning", "pytorch_lightning", "transformers"):
    sys.modules[name] = None  # as if it were not installed
from seismograd.integrations import accelerate, ignite, lightning, transformers
made = (accelerate.SeismogradTracker, ignite.SeismogradHandler, lightning.SeismogradCallback)
for kind in (*made, transformers.SeismogradCallback):
    try:
        kind(None) if kind is ignite.SeismogradHandler else kind()
    except ModuleNotFoundError as error:
        print(error)
"""


def test_without_any_framework_their_modules_say_what_installs_them() -> None:
    done = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=True)
    extras = ("accelerate", "ignite", "lightning", "transformers")
    assert [line.partition(": ")[2] for line in done.stdout.splitlines()] == [
        f"pip install 'seismograd[{extra}]'" for extra in extras
    ]


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
