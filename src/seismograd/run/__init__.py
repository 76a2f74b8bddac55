"""`seismograd run`: watches a script that knows nothing of it."""
