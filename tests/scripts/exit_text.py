"""Ends with a message, which Python writes to stderr, with exit code 1."""

# exit: 1
# stderr: No data set found: give a folder.
# exception: SystemExit: No data set found: give a folder.
# run: status=healthy steps=0

import sys

import torch

print(torch.zeros(2))
if len(sys.argv) < 2:
    sys.exit("No data set found: give a folder.")
print("never reached")
