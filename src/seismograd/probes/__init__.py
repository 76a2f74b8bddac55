"""Probes read values off the model, the optimizer and the process, and never judge."""
