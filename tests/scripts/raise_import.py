"""Needs a package that nobody has installed."""

# exit: 1
# stderr: ModuleNotFoundError: No module named 'tensorflou'
# run: status=crashed steps=0
# when: thorough

print("importing")
try:
    from torch import nonexistent
except ImportError as error:
    print(error.name, str(error).split(" (")[0])

import tensorflou as tf

print("never reached", tf)
