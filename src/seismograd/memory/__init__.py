"""What the process holds: snapshots, their comparison, the machine's limit, and what keeps memory alive."""
