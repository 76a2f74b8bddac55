"""Run as `python -m recipes`: the package's __main__, whose usage names the command."""

# module: recipes
# args: --help
# run: status=healthy steps=0

import argparse
import os
import sys

from .data import batches

print(__name__, __package__, __spec__.name, os.path.relpath(sys.argv[0]), batches.__module__)
parser = argparse.ArgumentParser(prog=None)
parser.add_argument("--epochs", type=int)
parser.parse_args()
