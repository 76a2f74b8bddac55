"""Where things stand in the user's code."""

from __future__ import annotations

import ast
import threading
from pathlib import Path
from typing import Any

import pytest

from seismograd.places import parsed, parsed_expression


def test_one_thread_parses_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Python 3.11 raises `SystemError: AST constructor recursion depth mismatch` where two do."""
    file, at_once, most = tmp_path / "train.py", 0, 0
    file.write_text("x = 1\n")
    parse, count = ast.parse, threading.Lock()

    def slow(*args: Any, **named: Any) -> Any:
        nonlocal at_once, most
        with count:
            at_once += 1
            most = max(most, at_once)
        threading.Event().wait(0.02)
        with count:
            at_once -= 1
        return parse(*args, **named)

    monkeypatch.setattr(ast, "parse", slow)
    threads = [threading.Thread(target=parsed, args=(str(file),)) for _ in range(4)]
    threads += [threading.Thread(target=parsed_expression, args=("f(x)",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
