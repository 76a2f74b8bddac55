"""An excepthook that itself fails."""

# exit: 1
# stderr: ValueError: the first error
# run: status=crashed steps=0
# when: thorough

import sys


def hook(kind, error, tb):
    print("hook called with", kind.__name__)
    raise LookupError("the second error, of the hook")


sys.excepthook = hook
raise ValueError("the first error")
