"""Detectors of what goes wrong between ranks: they judge what rank 0 merged from the notes of all, or a hang.

The finding's `rank` is the guilty one, not that of the reading.
"""
