"""What was read and found, rendered for people: each report reads the records and changes nothing."""
