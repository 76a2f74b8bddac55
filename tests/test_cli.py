"""The command line as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import seismograd
from seismograd.cli import app
from seismograd.cli.demos import FIRST, gallery
from seismograd.detectors import DEFAULT
from seismograd.records import WITHOUT_DETECTOR
from seismograd.reports.pages import page_of, pages

ROOT = Path(__file__).parents[1]
IDS = sorted({*WITHOUT_DETECTOR, *(detector.id for detector in DEFAULT)})


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def start(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "seismograd", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, stdin=subprocess.DEVNULL, check=False)


def test_the_version() -> None:
    assert run("--version") == (0, f"seismograd {seismograd.__version__}\n", "")
    assert start("--version").stdout == f"seismograd {seismograd.__version__}\n"


def test_help_names_the_commands_and_imports_no_torch() -> None:
    program = (
        "import sys; sys.argv = ['seismograd', '--help']\n"
        "from seismograd.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: code = end.code or 0\n"
        "sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(command in done.stdout for command in ("demo", "explain", "--version"))


def test_a_paragraph_of_help_is_not_broken_where_the_source_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert "optimizers, threads and the loader, one by one and together" in run("bench", "--help")[1]


def test_explain_lists_every_finding_by_its_part_of_the_catalogue() -> None:
    code, out, _ = run("explain")
    assert code == 0
    lines = out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "numerics:",
        "learning:",
        "loop:",
        "data:",
        "resources:",
        "ranks:",
        "diffusion:",
        "itself:",
    ]
    assert sorted(line.split()[0] for line in lines if line.startswith(" ")) == IDS
    assert lines.index("loop:") < next(at for at, line in enumerate(lines) if "missing-zero-grad" in line)


@pytest.mark.parametrize("finding", IDS)
def test_explain_shows_the_page_of_each_finding(finding: str) -> None:
    code, out, _ = run("explain", finding)
    page = pages()[finding]
    assert code == 0
    assert out.startswith(f"# {finding}\n\n{page.title}\n")
    headings = ["Why it matters", "How it is judged", "What to try", "An example"]
    if finding == "blind-probe":
        headings = ["Why it matters", "What to try"]
    places = [out.index(f"\n## {heading}\n") for heading in headings]
    assert places == sorted(places)
    assert all(f"`{limit}`" in out for limit in page.limits)


def test_every_detector_has_a_page_of_one_clear_sentence() -> None:
    for detector in DEFAULT:
        page = page_of(detector)
        assert page.title.endswith("."), page
        assert len(page.title) < 140, page


def test_an_unknown_id_gets_the_nearest_ones() -> None:
    code, out, err = run("explain", "nonfinite-gradients")
    assert (code, out) == (2, "")
    assert "there is no finding 'nonfinite-gradients', did you mean nonfinite-gradient" in err
    assert run("explain", "xyzzy")[2] == (
        "seismograd: there is no finding 'xyzzy' (seismograd explain lists all of them)\n"
    )


def test_the_gallery_is_that_of_the_repository() -> None:
    demos = gallery()
    assert next(iter(demos)) == FIRST == "nan"
    kept = {path.stem for kind in ("sick", "healthy") for path in ROOT.glob(f"examples/{kind}/*.py")}
    assert set(demos) == kept
    assert {demo.kind for demo in demos.values()} == {"sick", "healthy"}
    code, out, _ = run("demo", "--list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(demos)
    assert all(demo.title in out and demo.title.endswith(".") for demo in demos.values())


def test_an_unknown_demo_gets_the_nearest_one() -> None:
    code, _, err = run("demo", "nam")
    assert code == 2
    assert "there is no demo 'nam', did you mean nan?" in err


def test_the_demo_shows_the_fault_and_writes_the_report(tmp_path: Path) -> None:
    done = start("demo", "--report", "out/demo.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "critical[nonfinite-gradient]" in done.stderr
    assert "critical[" not in done.stdout, "stdout is the script's own"
    report = json.loads((tmp_path / "out" / "demo.json").read_text())
    assert report["run"]["status"] == "critical"
    assert report["findings"][0]["id"] == "nonfinite-gradient"
    assert "out/demo.json" in done.stderr


def test_a_report_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    done = start("demo", "--report", "taken/demo.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "the report cannot be written to 'taken/demo.json'" in done.stderr
    assert "Traceback" not in done.stderr
