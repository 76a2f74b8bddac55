"""Leaves with an object that is neither a number nor a text."""

# exit: 1
# stderr: Outcome(best=0.25, epoch=3)
# exception: SystemExit: Outcome(best=0.25, epoch=3)
# run: status=healthy steps=0
# when: thorough

from typing import NamedTuple


class Outcome(NamedTuple):
    best: float
    epoch: int


print("leaving")
raise SystemExit(Outcome(0.25, 3))
