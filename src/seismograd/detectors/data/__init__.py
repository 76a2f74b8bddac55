"""Faults of the data: scales, labels, order, repeats."""
