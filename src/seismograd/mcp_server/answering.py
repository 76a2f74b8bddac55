"""How a tool answers: data for programs, a short text for who reads, and errors that say what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent

from seismograd.mcp_server.bounds import bounded, clipped
from seismograd.server.problems import RefusedError
from seismograd.store import NoRunError, StoreError
from seismograd.store.codec import DamagedError

Tool = TypeVar("Tool", bound=Callable[..., Any])

_CUT = "[shortened: long texts and lists are not whole; ask for less at once, by offset, start and stop, or number]"


def answer(text: str, data: Mapping[str, Any]) -> CallToolResult:
    """Both, each no longer than it may be."""
    told, cut = bounded(data)
    told["cut"] = cut
    text = clipped(text)
    return CallToolResult(
        content=[TextContent(type="text", text=f"{text}\n{_CUT}" if cut else text)], structured_content=told
    )


def said(tool: Tool) -> Tool:
    """A tool whose foreseen errors reach the model as they are told to people, with what it can do about them."""

    @wraps(tool)
    def asked(*args: Any, **more: Any) -> Any:
        try:
            return tool(*args, **more)
        except NoRunError as error:
            raise ToolError(f"{error}. list_runs shows the runs there are; 'last' is the newest.") from error
        except RefusedError as error:
            raise ToolError(f"{error.message}: {error.hint}" if error.hint else error.message) from error
        except DamagedError as error:
            raise ToolError(f"the store is damaged there: {error}. Other runs and steps may be whole.") from error
        except (StoreError, ValueError) as error:
            raise ToolError(str(error)) from error

    return asked  # type: ignore[return-value]
