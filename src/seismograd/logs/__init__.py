"""Runs that Seismograd did not watch: their logs, read and judged."""

from seismograd.logs.log import LogError
from seismograd.logs.read import read_log

__all__ = ["LogError", "read_log"]
