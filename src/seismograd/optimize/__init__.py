"""Faster with proof, and a training loop that survives: modes over the same weights, their comparison, the trainer."""
