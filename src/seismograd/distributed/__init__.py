"""Training on several ranks: what they tell each other, over a side channel that cannot hold the training up."""
