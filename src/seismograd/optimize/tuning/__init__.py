"""Finds what makes a training faster, and proves that it still learns the same."""

from seismograd.optimize.tuning.tuning import tune

__all__ = ["tune"]
