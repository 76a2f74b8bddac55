"""`seismograd mcp`: recorded runs for language models."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated

import typer

from seismograd.cli.mistakes import stop
from seismograd.cli.stores import Where
from seismograd.extras import need


def mcp(
    store: Where = None,
    allow_changes: Annotated[
        bool,
        typer.Option("--allow-changes", help="Also let it ask live runs for something, and delete runs that are over."),
    ] = False,
) -> None:
    """Serve the runs to language models: a Model Context Protocol server on stdin and stdout.

    It only reads, unless --allow-changes is given. An assistant starts it by itself; its configuration names the
    command: seismograd mcp --store /path/to/.seismograd
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is the protocol's from the first byte on
            need("mcp", "mcp")
            from seismograd.mcp_server.service import serve
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] != "mcp":
            raise
        known = "pip install" in str(error)
        stop(str(error) if known else "mcp is too old, 2 or newer is needed: pip install -U 'seismograd[mcp]'")
    from seismograd.store import StoreError

    try:
        serve(store, allow_changes=allow_changes)
    except StoreError as error:
        stop(str(error))
