"""What the run uses: memory, processors, time."""
