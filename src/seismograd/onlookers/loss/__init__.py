"""What goes into the loss, and what made it."""
