"""What one rank of several knows of its own step, for the others to compare with theirs."""
