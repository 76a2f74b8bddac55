"""A real kernel, and what its cells put out."""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jupyter_client.manager import KernelManager


@dataclass
class Cell:
    """What one execution said."""

    stdout: str = ""
    stderr: str = ""
    shown: list[dict[str, Any]] = field(default_factory=list)
    """New outputs: their data, with the id under which they may be drawn again."""
    updates: list[dict[str, Any]] = field(default_factory=list)
    result: dict[str, str] = field(default_factory=dict)
    number: int = 0
    """What stands beside it: In [3]."""
    error: str | None = None
    trace: str = ""

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it. Where it strikes a jump without a line, IPython 9 fails to format the error, and
        tells it on stderr instead."""
        return self.error == "KeyboardInterrupt" or (self.error is None and "\nKeyboardInterrupt\n" in self.stderr)

    def last(self, shown: dict[str, Any]) -> dict[str, str]:
        """The newest state of an output."""
        return [shown, *(each for each in self.updates if each["id"] == shown["id"])][-1]["data"]  # type: ignore[no-any-return]


class Kernel:
    """A kernel in a process of its own, whose working directory is `folder`."""

    def __init__(self, folder: Path) -> None:
        self._manager = KernelManager(kernel_name="python3")
        self._manager.start_kernel(cwd=str(folder))
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)

    def run(self, code: str, *, interrupt_at: str | None = None, cell_id: str | None = None) -> Cell:
        """Executes a cell, and interrupts it as soon as it has printed `interrupt_at`."""
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = self._client.session.msg("execute_request", {**content, "stop_on_error": False})
        if cell_id is not None:
            message["metadata"]["cellId"] = cell_id
        self._client.shell_channel.send(message)
        cell, deadline, asked = Cell(), time.monotonic() + 120, False
        while time.monotonic() < deadline:
            try:
                told = self._client.get_iopub_msg(timeout=5)
            except queue.Empty:
                continue
            if told["parent_header"].get("msg_id") != message["header"]["msg_id"]:
                continue
            kind, said = told["msg_type"], told["content"]
            if kind == "status" and said["execution_state"] == "idle":
                return cell
            self._take(cell, kind, said)
            if interrupt_at is not None and not asked and interrupt_at in cell.stdout:
                asked = True
                self._manager.interrupt_kernel()
        self._manager.interrupt_kernel()  # for those that come after this one
        raise TimeoutError(code)

    def good(self, code: str, **more: Any) -> Cell:
        """The same, of a cell that ends without an error."""
        cell = self.run(code, **more)
        assert cell.error is None, cell.trace
        return cell

    @staticmethod
    def _take(cell: Cell, kind: str, said: dict[str, Any]) -> None:
        if kind == "stream":
            setattr(cell, said["name"], getattr(cell, said["name"]) + said["text"])
        elif kind in ("display_data", "update_display_data"):
            into = cell.shown if kind == "display_data" else cell.updates
            into.append({"id": said.get("transient", {}).get("display_id"), "data": said["data"]})
        elif kind == "execute_result":
            cell.result = said["data"]
        elif kind == "execute_input":
            cell.number = said["execution_count"]
        elif kind == "error":
            cell.error, cell.trace = said["ename"], "\n".join(said["traceback"])
