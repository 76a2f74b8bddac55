"""All onlookers, in the order in which they hear."""

from __future__ import annotations

from seismograd.probes.activations import Activations
from seismograd.probes.batches import Batches
from seismograd.probes.columns import Columns
from seismograd.probes.data import Data
from seismograd.probes.losses import Losses
from seismograd.probes.membership import Membership
from seismograd.probes.modes import Modes
from seismograd.probes.onlooker import Onlooker
from seismograd.probes.order import Order
from seismograd.probes.outputs import Outputs

ONLOOKERS: tuple[type[Onlooker], ...] = (Order, Membership, Columns, Modes, Batches, Losses, Activations, Outputs, Data)
