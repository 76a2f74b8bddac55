"""Faults of the training loop itself: what it does, in which order, with which parameters."""
