"""How far a ladder has been climbed: which of its policies is to act, and whether it has not helped."""

from __future__ import annotations

from collections import deque

from seismograd.recovery.policies import Call, Ladder, LowerLr, Policy, Rollback, Skip

FEW = 3
"""So often in a row something is done on a mere suspicion; then it is taken for how things are now."""


class Climb:
    """One ladder in one run."""

    def __init__(self, ladder: Ladder) -> None:
        self.ladder = ladder
        self.rung = 0
        self._steps: deque[int] = deque(maxlen=4096)  # of the present policy
        self._in_a_row = 0
        self._suspicions, self._suspected = 0, -2
        self._newest = -2

    @property
    def policy(self) -> Policy:
        return self.ladder.policies[self.rung]

    def settle(self, step: int) -> None:
        """What has been quiet for as long as its limit counts begins anew, at the first policy."""
        if self.rung and self._newest >= 0 and step - self._newest > self.policy.within:
            self.rung = 0
            self._steps.clear()

    def rests(self, step: int) -> bool:
        """Whether it waits to see if what it did has helped."""
        policy = self.policy
        rest = policy.rest if isinstance(policy, (LowerLr, Rollback)) else 0
        return bool(self._steps) and step <= self._steps[-1] + rest

    def may_suspect(self, step: int) -> bool:
        """Whether to act on a suspicion: on the first few in a row."""
        self._suspicions = self._suspicions + 1 if step <= self._suspected + 1 else 1
        self._suspected = step
        return self.policy.prevents and self._suspicions <= FEW

    def escalates(self, step: int) -> bool:
        """Goes on to the next policy if the present one has acted as often as it may."""
        policy = self.policy
        if policy.limit is None or self.rung + 1 == len(self.ladder.policies):
            return False
        while self._steps and self._steps[0] <= step - policy.within:
            self._steps.popleft()
        in_a_row = self._in_a_row if step <= self._newest + 1 and not isinstance(policy, Call) else 0
        most = policy.in_a_row if isinstance(policy, Skip) else Skip.in_a_row
        if len(self._steps) < policy.limit and in_a_row < most:
            return False
        self.rung += 1
        self._steps.clear()
        self._in_a_row = 0
        return True

    def act(self, step: int, *, suspected: bool, protects: bool = False) -> None:
        """It acts at this step. What is only suspected does not use it up, nor does what only keeps a batch out."""
        in_a_row = step <= self._newest + 1
        if step != self._newest:
            self._in_a_row = self._in_a_row + 1 if in_a_row else 1
            if not suspected and not protects:
                self._steps.append(step)
        self._newest = step
