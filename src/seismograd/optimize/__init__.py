"""Faster with proof, and a training loop that survives: modes, their comparison, the trainer."""
