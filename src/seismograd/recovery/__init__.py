"""A run that survives: what can be done about an error, each time on record."""
