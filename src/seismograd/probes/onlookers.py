"""All onlookers, in the order in which they hear."""

from __future__ import annotations

from seismograd.probes.onlooker import Onlooker

ONLOOKERS: tuple[type[Onlooker], ...] = ()
