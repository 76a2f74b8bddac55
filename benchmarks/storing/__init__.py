"""What `benchmarks/store.py` writes, and whom it compares with."""
