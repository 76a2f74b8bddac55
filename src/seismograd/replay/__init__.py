"""A bad step, run a second time under full tracing, to say where it went bad."""
