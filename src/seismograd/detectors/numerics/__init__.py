"""Faults of numbers: not finite, too large, too small."""
