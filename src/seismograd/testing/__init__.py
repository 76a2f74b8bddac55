"""Tests of a training that fail with a diagnosis. Importing it takes neither torch nor pytest."""

from seismograd.testing.watching import Healthy, assert_healthy, assert_trains

__all__ = ["Healthy", "assert_healthy", "assert_trains"]
