"""Programs with one known origin of NaN or Inf each, and what tells how well tools find it."""
