"""`seismograd ui`: the dashboard in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from seismograd.cli.mistakes import stop
from seismograd.cli.stores import Where


def ui(
    host: Annotated[
        str, typer.Option(help="Where to listen. Anything but this machine itself wants a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port; 0: any free one.", show_default="8484, or the next free one"),
    ] = None,
    store: Where = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="SEISMOGRAD_TOKEN",
            help="What has to be known to be let in.",
            show_default="none on this machine, else made and printed",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another name for this server, as browsers ask for it.", show_default=False),
    ] = None,
    open_browser: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Open the browser.", show_default="if there is a screen"),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Only show: no requests to runs, no deletions.")
    ] = False,
) -> None:
    """Show runs in the browser: live, back to their beginning, over each other.

    Example: seismograd ui, seismograd ui --store postgresql://me@db/runs --host 0.0.0.0
    """
    from seismograd.server.serving import ServeError, has_screen, serve
    from seismograd.store import StoreError

    try:
        serve(
            store,
            host=host,
            port=port,
            token=token,
            allow_hosts=allow_host or (),
            read_only=read_only,
            open_browser=has_screen() if open_browser is None else open_browser,
            say=typer.echo,
        )
    except (ServeError, StoreError) as error:
        stop(str(error))
