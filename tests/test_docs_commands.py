"""Every `seismograd ...` that a document shows has a command and options that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from seismograd.cli import app

from .documents import DOCUMENTS, FENCE, ROOT, fences, name_of

GROUP: Any = get_command(app)


def command_lines() -> Iterator[Any]:
    """The command lines in blocks and within sentences."""
    for path in DOCUMENTS:
        shown = [line for _, language, body, _ in fences(path) if language != "python" for line in body.splitlines()]
        shown = [line.strip().removeprefix("$ ") for line in shown]
        shown += re.findall(r"(?<!`)`(seismograd [^`\n]+)`(?!`)", FENCE.sub("", path.read_text(encoding="utf-8")))
        for line in dict.fromkeys(line for line in shown if line.startswith("seismograd ")):
            yield pytest.param(line, id=f"{name_of(path)}: {line[:60]}")


@pytest.mark.parametrize("line", list(command_lines()))
def test_a_command_line_in_the_docs_would_be_understood(line: str) -> None:
    assert complaint_about(line) is None


def complaint_about(line: str) -> str | None:
    """What is wrong with it; `[--option X]`, `a | b` and what stands behind two spaces or # are understood."""
    line = re.split(r"\s{2,}|\s#\s", line)[0]
    names, words = [], shlex.split(re.sub(r"[\[\]]", " ", line))[1:]
    while words:
        names.append(words.pop(0))
        if words[:1] != ["|"]:
            break
        words.pop(0)
    complaints = (about_options(name, words) for name in names if not name.isupper() and name != "...")
    return next((complaint for complaint in complaints if complaint), None)


def about_options(name: str, words: list[str]) -> str | None:
    if name.startswith("-"):
        return None if name in options(GROUP) else f"seismograd has no option {name}"
    if name not in GROUP.commands:
        return f"there is no command {name!r}"
    known, at = options(GROUP.commands[name]), 0
    while at < len(words) and words[at] not in ("|", ">", "2>"):
        option, _, value = words[at].partition("=")
        if not option.startswith("-") or option == "-":
            if name == "run":
                return None  # the rest is the script's own
            at += 1
            continue
        for each in option.split("|"):
            if each not in known:
                return f"`seismograd {name}` has no option {each}"
        if option == "-m":
            return None
        at += 2 if known[option.split("|")[0]] and not value else 1
    return None


def options(command: Any) -> dict[str, bool]:
    """The options of a command, and whether each takes a value."""
    found = {"--help": False, "-h": False, "-m": True}
    for parameter in command.params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            found[option] = not getattr(parameter, "is_flag", False)
    return found


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("seismograd run train.py --epochs 3", None),
        ("seismograd run --report out.json --fail-on critical -m package.train --lr 0.1", None),
        ("seismograd runs | show | diagnose", None),
        ("seismograd diagnose RUN [--again]     the findings in full", None),
        ("seismograd runs --json | jq .", None),
        ("seismograd --version", None),
        ("seismograd wach train.py", "there is no command 'wach'"),
        ("seismograd runs | wach", "there is no command 'wach'"),
        ("seismograd --versoin", "seismograd has no option --versoin"),
        ("seismograd run --rapport out.json train.py", "`seismograd run` has no option --rapport"),
        ("seismograd show last [--again]", "`seismograd show` has no option --again"),
    ],
)
def test_a_wrong_one_is_noticed(line: str, wrong: str | None) -> None:
    assert complaint_about(line) == wrong


def test_every_option_of_run_is_in_its_guide() -> None:
    rows = re.findall(r"(?m)^\| (`-.*?) \| `(SEISMOGRAD_\w+)", (ROOT / "docs" / "run.md").read_text(encoding="utf-8"))
    told = set(re.findall(r"--[a-z-]+", " ".join(options for options, _ in rows)))
    for each in GROUP.commands["run"].params:
        names = {name for name in (*each.opts, *each.secondary_opts) if name.startswith("--")} - {
            "--help",
            "--module",
        }  # -m
        assert not names or names & told, names
        assert each.envvar is None or each.envvar in {variable for _, variable in rows}
