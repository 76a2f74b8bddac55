"""Detectors: one small file a fault. They judge readings and never touch torch.

`DEFAULT` holds them all, in the order in which causes come before their effects where two are seen at the same step.
"""

from __future__ import annotations

from seismograd.detectors.learning.bad_initialization import BadInitialization
from seismograd.detectors.learning.constant_output import ConstantOutput
from seismograd.detectors.learning.dead_units import DeadUnits
from seismograd.detectors.learning.loss_explosion import LossExplosion
from seismograd.detectors.learning.loss_oscillation import LossOscillation
from seismograd.detectors.learning.loss_plateau import LossPlateau
from seismograd.detectors.learning.loss_spike import LossSpike
from seismograd.detectors.learning.lr_jump import LrJump
from seismograd.detectors.learning.lr_too_high import LrTooHigh
from seismograd.detectors.learning.lr_too_low import LrTooLow
from seismograd.detectors.learning.overfitting import Overfitting
from seismograd.detectors.learning.saturated_units import SaturatedUnits
from seismograd.detectors.learning.update_ratio_high import UpdateRatioHigh
from seismograd.detectors.learning.update_ratio_low import UpdateRatioLow
from seismograd.detectors.learning.weight_decay_dominates import WeightDecayDominates
from seismograd.detectors.loop.batch_mixing import BatchMixing
from seismograd.detectors.loop.target_leak import TargetLeak
from seismograd.detectors.loop.buffer_drift import BufferDrift
from seismograd.detectors.loop.eval_mode_training import EvalModeTraining
from seismograd.detectors.loop.train_mode_evaluation import TrainModeEvaluation
from seismograd.detectors.numerics.amp_scale_collapse import AmpScaleCollapse
from seismograd.detectors.numerics.gradient_explosion import GradientExplosion
from seismograd.detectors.numerics.gradient_vanishing import GradientVanishing
from seismograd.detectors.numerics.nonfinite_activation import NonfiniteActivation
from seismograd.detectors.numerics.nonfinite_gradient import NonfiniteGradient
from seismograd.detectors.numerics.nonfinite_input import NonfiniteInput
from seismograd.detectors.numerics.nonfinite_loss import NonfiniteLoss
from seismograd.detectors.numerics.nonfinite_parameter import NonfiniteParameter
from seismograd.detectors.numerics.precision_underflow import PrecisionUnderflow
from seismograd.protocols import Detector

DEFAULT: tuple[Detector, ...] = (
    TargetLeak(),
    BatchMixing(),
    EvalModeTraining(),
    TrainModeEvaluation(),
    BufferDrift(),
    BadInitialization(),
    LrJump(),
    LrTooHigh(),
    NonfiniteInput(),
    NonfiniteParameter(),
    NonfiniteActivation(),
    NonfiniteLoss(),
    NonfiniteGradient(),
    AmpScaleCollapse(),
    PrecisionUnderflow(),
    GradientExplosion(),
    LossExplosion(),
    LossSpike(),
    DeadUnits(),
    SaturatedUnits(),
    ConstantOutput(),
    GradientVanishing(),
    LrTooLow(),
    WeightDecayDominates(),
    UpdateRatioHigh(),
    UpdateRatioLow(),
    LossOscillation(),
    Overfitting(),
    LossPlateau(),
)

_BY_ID = {detector.id: detector for detector in DEFAULT}


def by_id(name: str) -> Detector:
    """The detector with this id, with its default limits; an unknown id is a `KeyError` that lists the known ones."""
    try:
        return _BY_ID[name]
    except KeyError:
        raise KeyError(f"no detector is called {name!r}; there are {', '.join(sorted(_BY_ID))}") from None


__all__ = ["DEFAULT", "by_id"]
