"""The page for newcomers, followed to the letter in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from .documents import ROOT, fences
from .test_docs import without_numbers

PAGE = ROOT / "docs" / "getting-started.md"


def seismograd(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    env["SEISMOGRAD_STORE"], env["SEISMOGRAD_HOME"] = "", str(folder / ".seismograd")
    command = [sys.executable, "-m", "seismograd", *words]
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )


def test_a_newcomer_finds_the_bug_mends_it_and_sees_that_it_is_mended(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    script = next(body for _, language, body, _ in fences(PAGE) if language == "python")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    verdict = re.search(r"<!-- verdict.*-->\n```\n(.*?)```", text, re.DOTALL)
    assert verdict is not None

    sick = seismograd(tmp_path, "run", "train.py")
    assert sick.returncode == 0, sick.stderr
    assert sick.stdout.count("loss nan") == 3
    assert without_numbers(verdict[1]) in without_numbers(sick.stderr)
    for word in ("saved:", "help:", "then:"):  # which the page explains
        assert f"= {word}" in sick.stderr

    again = seismograd(tmp_path, "replay", "last", "--model", "train.py:Classifier")
    assert again.returncode == 0, again.stderr

    (mended,) = re.findall(r"^ +x = .*1e-6\)$", text, re.MULTILINE)
    bad = script.splitlines()[16]  # line 17, as the page says
    assert bad.strip() in text
    (tmp_path / "train.py").write_text(script.replace(bad, mended), encoding="utf-8")
    once_more = seismograd(tmp_path, "replay", "last", "--model", "train.py:Classifier")
    assert once_more.returncode == 1
    assert "everything is finite now: what went bad in the run (train.py:17) is mended" in once_more.stdout

    healthy = seismograd(tmp_path, "run", "train.py")
    assert "seismograd: healthy after 120 steps, nothing found" in healthy.stderr
    assert "nan" not in healthy.stdout

    listed = seismograd(tmp_path, "runs").stdout
    assert "healthy" in listed
    assert "critical" in listed
    assert "seismograd: healthy after 120 steps" in seismograd(tmp_path, "run", "--preflight", "train.py").stderr
