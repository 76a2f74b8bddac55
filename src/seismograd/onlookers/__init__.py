"""Onlookers hear what the loop does and tell it as plain facts; they never judge. In the order in which they hear."""

from __future__ import annotations

from seismograd.onlookers.data.batches import Batches
from seismograd.onlookers.data.columns import Columns
from seismograd.onlookers.data.data import Data
from seismograd.onlookers.loop.modes import Modes
from seismograd.onlookers.loop.order import Order
from seismograd.onlookers.loss.losses import Losses
from seismograd.onlookers.onlooker import Onlooker
from seismograd.onlookers.resources.growth import Growth
from seismograd.onlookers.resources.pressure import Pressure
from seismograd.onlookers.resources.processors import Processors
from seismograd.onlookers.values.activations import Activations
from seismograd.onlookers.values.outputs import Outputs
from seismograd.onlookers.weights.membership import Membership
from seismograd.onlookers.weights.uses import Uses

ONLOOKERS: tuple[type[Onlooker], ...] = (
    Order,
    Membership,
    Uses,
    Columns,
    Modes,
    Batches,
    Losses,
    Activations,
    Outputs,
    Data,
    Growth,
    Pressure,
    Processors,
)
