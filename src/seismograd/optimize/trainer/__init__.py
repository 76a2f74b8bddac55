"""A training loop that is watched, saved as it goes, and gone on with exactly."""

from seismograd.optimize.trainer.trainer import Trainer, create_enhanced_training_optimizer

__all__ = ["Trainer", "create_enhanced_training_optimizer"]
