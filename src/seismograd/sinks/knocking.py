"""Whether a server is there at all: the packages that speak to it would try for long before they say so."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from seismograd.masking import without_secrets


def knock(address: str) -> None:
    """Raises a `ConnectionError` if nothing answers. What is reached through a proxy is not asked, nor is a file."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return
    if parts.scheme in getproxies() and not proxy_bypass(parts.hostname):
        return
    try:
        socket.create_connection((parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)), 3.0).close()
    except OSError as error:
        raise ConnectionError(f"no server answers at {without_secrets(address)}: {error.strerror or error}") from None
