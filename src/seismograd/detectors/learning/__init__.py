"""Faults of learning: the loss, the learning rate, the updates, the start."""
