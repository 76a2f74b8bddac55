"""Detectors: one small file a fault. They judge readings and never touch torch.

`DEFAULT` holds them all, in the order in which causes come before their effects where two are seen at the same step.
"""

from __future__ import annotations

from seismograd.detectors.data.class_imbalance import ClassImbalance
from seismograd.detectors.data.duplicate_randomness import DuplicateRandomness
from seismograd.detectors.data.input_drift import InputDrift
from seismograd.detectors.data.label_out_of_range import LabelOutOfRange
from seismograd.detectors.data.repeated_batch import RepeatedBatch
from seismograd.detectors.data.shuffled_labels import ShuffledLabels
from seismograd.detectors.data.unnormalized_input import UnnormalizedInput
from seismograd.detectors.data.unnormalized_target import UnnormalizedTarget
from seismograd.detectors.data.unshuffled_data import UnshuffledData
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
from seismograd.detectors.learning.output_range import OutputRange
from seismograd.detectors.learning.overfitting import Overfitting
from seismograd.detectors.learning.saturated_units import SaturatedUnits
from seismograd.detectors.learning.update_ratio_high import UpdateRatioHigh
from seismograd.detectors.learning.update_ratio_low import UpdateRatioLow
from seismograd.detectors.learning.weight_decay_dominates import WeightDecayDominates
from seismograd.detectors.loop.accumulation_mismatch import AccumulationMismatch
from seismograd.detectors.loop.batch_mixing import BatchMixing
from seismograd.detectors.loop.broadcast_loss import BroadcastLoss
from seismograd.detectors.loop.buffer_drift import BufferDrift
from seismograd.detectors.loop.detached_loss import DetachedLoss
from seismograd.detectors.loop.double_softmax import DoubleSoftmax
from seismograd.detectors.loop.eval_mode_training import EvalModeTraining
from seismograd.detectors.loop.frozen_parameter import FrozenParameter
from seismograd.detectors.loop.ineffective_clipping import IneffectiveClipping
from seismograd.detectors.loop.ineffective_freeze import IneffectiveFreeze
from seismograd.detectors.loop.loss_input_mismatch import LossInputMismatch
from seismograd.detectors.loop.lost_gradient import LostGradient
from seismograd.detectors.loop.missing_activation import MissingActivation
from seismograd.detectors.loop.missing_gradient import MissingGradient
from seismograd.detectors.loop.missing_step import MissingStep
from seismograd.detectors.loop.missing_zero_grad import MissingZeroGrad
from seismograd.detectors.loop.repeated_recovery import RepeatedRecovery
from seismograd.detectors.loop.scheduler_order import SchedulerOrder
from seismograd.detectors.loop.target_leak import TargetLeak
from seismograd.detectors.loop.train_mode_evaluation import TrainModeEvaluation
from seismograd.detectors.loop.unoptimized_parameter import UnoptimizedParameter
from seismograd.detectors.loop.unregistered_parameter import UnregisteredParameter
from seismograd.detectors.loop.unused_parameter import UnusedParameter
from seismograd.detectors.numerics.amp_scale_collapse import AmpScaleCollapse
from seismograd.detectors.numerics.gradient_explosion import GradientExplosion
from seismograd.detectors.numerics.gradient_vanishing import GradientVanishing
from seismograd.detectors.numerics.nonfinite_activation import NonfiniteActivation
from seismograd.detectors.numerics.nonfinite_gradient import NonfiniteGradient
from seismograd.detectors.numerics.nonfinite_input import NonfiniteInput
from seismograd.detectors.numerics.nonfinite_loss import NonfiniteLoss
from seismograd.detectors.numerics.nonfinite_parameter import NonfiniteParameter
from seismograd.detectors.numerics.precision_underflow import PrecisionUnderflow
from seismograd.detectors.ranks.rank_desync import RankDesync
from seismograd.detectors.ranks.rank_hang import RankHang
from seismograd.detectors.ranks.rank_nonfinite import RankNonfinite
from seismograd.detectors.ranks.rank_same_data import RankSameData
from seismograd.detectors.ranks.rank_same_randomness import RankSameRandomness
from seismograd.detectors.ranks.rank_sampler import RankSampler
from seismograd.detectors.ranks.rank_straggler import RankStraggler
from seismograd.detectors.ranks.rank_uneven_input import RankUnevenInput
from seismograd.detectors.resources.cpu_pressure import CpuPressure
from seismograd.detectors.resources.data_starvation import DataStarvation
from seismograd.detectors.resources.growing_graph import GrowingGraph
from seismograd.detectors.resources.memory_leak import MemoryLeak
from seismograd.detectors.resources.memory_pressure import MemoryPressure
from seismograd.detectors.resources.slow_step import SlowStep
from seismograd.protocols import Detector

DEFAULT: tuple[Detector, ...] = (
    LabelOutOfRange(),
    LossInputMismatch(),
    DoubleSoftmax(),
    BroadcastLoss(),
    OutputRange(),
    MissingActivation(),
    MissingStep(),
    LostGradient(),
    MissingZeroGrad(),
    AccumulationMismatch(),
    SchedulerOrder(),
    IneffectiveClipping(),
    DetachedLoss(),
    UnregisteredParameter(),
    UnoptimizedParameter(),
    MissingGradient(),
    FrozenParameter(),
    IneffectiveFreeze(),
    UnusedParameter(),
    TargetLeak(),
    BatchMixing(),
    EvalModeTraining(),
    TrainModeEvaluation(),
    BufferDrift(),
    DuplicateRandomness(),
    UnshuffledData(),
    UnnormalizedInput(),
    UnnormalizedTarget(),
    InputDrift(),
    RepeatedBatch(),
    GrowingGraph(),
    MemoryLeak(),
    MemoryPressure(),
    CpuPressure(),
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
    ShuffledLabels(),
    ClassImbalance(),
    LossPlateau(),
    DataStarvation(),
    SlowStep(),
    RepeatedRecovery(),
    RankSampler(),
    RankUnevenInput(),
    RankSameData(),
    RankSameRandomness(),
    RankNonfinite(),
    RankDesync(),
    RankStraggler(),
    RankHang(),
)

_BY_ID = {detector.id: detector for detector in DEFAULT}


def by_id(name: str) -> Detector:
    """The detector with this id, with its default limits; an unknown id is a `KeyError` that lists the known ones."""
    try:
        return _BY_ID[name]
    except KeyError:
        raise KeyError(f"no detector is called {name!r}; there are {', '.join(sorted(_BY_ID))}") from None


__all__ = ["DEFAULT", "by_id"]
