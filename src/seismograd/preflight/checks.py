"""All checks, in the order in which they are made."""

from __future__ import annotations

from seismograd.preflight.chance import Chance
from seismograd.preflight.fits import Fits
from seismograd.preflight.future import Future
from seismograd.preflight.initialization import Initialization
from seismograd.preflight.loading import Loading
from seismograd.preflight.membership import Membership
from seismograd.preflight.memory import Memory
from seismograd.preflight.mixing import Mixing
from seismograd.preflight.modes import Modes
from seismograd.preflight.overfit import Overfit
from seismograd.preflight.rate import Rate
from seismograd.preflight.repeats import Repeats
from seismograd.preflight.scales import Scales
from seismograd.preflight.scene import Check
from seismograd.preflight.works import Works

CHECKS: tuple[Check, ...] = (
    Works(),
    Fits(),
    Chance(),
    Membership(),
    Mixing(),
    Future(),
    Initialization(),
    Scales(),
    Repeats(),
    Modes(),
    Overfit(),
    Rate(),
    Loading(),
    Memory(),
)
