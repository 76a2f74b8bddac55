"""Which weights take part, get gradients, sit in an optimizer and change."""
