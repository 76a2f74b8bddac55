"""What the loop does, in which order, in which mode."""
