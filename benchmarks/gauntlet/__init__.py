"""What `benchmarks/gauntlet.py` runs: programs and patients, sick and healthy, and the other tools."""
