"""Faults of what a run uses: memory, processors, time."""
