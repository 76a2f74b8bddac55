"""A wrong option: argparse writes its usage, with the script's own name in it, and exits with 2."""

# args: --lr fast
# exit: 2
# stderr: usage: args_wrong.py [-h] [--lr LR]
# run: status=healthy steps=0
# when: thorough

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.parse_args()
