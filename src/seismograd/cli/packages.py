"""The packages that Seismograd works with: what each is for, which extra installs it, and the version tested."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata


@dataclass(frozen=True, slots=True)
class Package:
    """A package by the name that pip knows it by."""

    name: str
    tested: str
    """The version that the tests ran with."""
    least: str
    """The oldest that is asked for."""
    extra: str | None = None
    """`None`: it is always there."""

    @property
    def installed(self) -> str | None:
        try:
            return metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return None

    @property
    def line(self) -> str:
        """What installs it."""
        return "pip install seismograd" if self.extra is None else f"pip install 'seismograd[{self.extra}]'"


TESTED = (
    Package("torch", "2.13.0", "2.4"),
    Package("numpy", "2.4.6", "1.26"),
    Package("fastapi", "0.163.0", "0.135"),
    Package("plotly", "7.1.0", "6"),
    Package("psutil", "7.2.2", "5.9"),
    Package("rich", "15.0.0", "13"),
    Package("safetensors", "0.8.0", "0.4.3"),
    Package("sqlalchemy", "2.1.8", "2"),
    Package("typer", "0.29.1", "0.15"),
    Package("uvicorn", "0.54.0", "0.30"),
    Package("accelerate", "1.15.0", "1", "accelerate"),
    Package("diffusers", "0.42.1", "0.30", "diffusers"),
    Package("ipykernel", "7.4.0", "6", "notebook"),
    Package("lightning", "2.6.6", "2.4", "lightning"),
    Package("mcp", "2.3.0", "2", "mcp"),
    Package("mlflow-skinny", "3.17.2", "2.16", "mlflow"),
    Package("opentelemetry-sdk", "1.45.2", "1.39", "otel"),
    Package("opentelemetry-exporter-otlp-proto-http", "1.45.1", "1.39", "otel"),
    Package("peft", "0.21.2", "0.13", "peft"),
    Package("prometheus-client", "0.26.0", "0.20", "prometheus"),
    Package("psycopg", "3.3.9", "3.1", "postgres"),
    Package("pytorch-ignite", "0.5.5", "0.5", "ignite"),
    Package("tensorboard", "2.21.0", "2.16", "tensorboard"),
    Package("trackio", "0.43.0", "0.30.2", "trackio"),
    Package("transformers", "5.23.0", "4.46", "transformers"),
    Package("wandb", "0.31.0", "0.19.10", "wandb"),
)
"""Those that are always there first, then the extras."""


def versions_document() -> str:
    """`docs/versions.md`."""
    rows = [
        f"| {each.name} | {each.least} | {each.tested} | "
        + (f"`{each.line}` |" if each.extra else "always installed |")
        for each in TESTED
    ]
    return "\n".join(
        [
            "# Versions",
            "",
            "Python 3.11 or newer. The tests run the real packages, in these versions, together in one environment:",
            "`constraints.txt` pins them, and a test compares them with what is installed.",
            "`seismograd doctor` compares it with what is installed on your machine.",
            "",
            "| package | oldest asked for | tested | what installs it |",
            "|---|---|---|---|",
            *rows,
            "",
            "This page is made from `src/seismograd/cli/packages.py` by `python docs/make_versions.py`.",
            "",
        ]
    )


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: 2.13.0+cpu is 2, 13, 0."""
    found = []
    for part in version.partition("+")[0].split("."):
        digits = "".join(letter for letter in part if letter.isdigit())
        if not digits or not part[0].isdigit():
            break
        found.append(int(digits))
    return tuple(found)
