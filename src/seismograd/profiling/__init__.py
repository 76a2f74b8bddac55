"""Where the time of a block of code goes: a trace for Perfetto, tables of the dearest parts, and a verdict in words."""

from seismograd.profiling.result import ProfileResult
from seismograd.profiling.session import Profile

__all__ = ["Profile", "ProfileResult"]
