"""The front desk: one method for each thing that a person wants to do by hand, each a few lines over what does it."""
