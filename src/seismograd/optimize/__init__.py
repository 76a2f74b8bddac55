"""Faster, with proof: modes of optimisation, each over the same weights."""
