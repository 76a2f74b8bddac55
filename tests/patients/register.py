"""What a patient is: a small training program, written as a user would write it, and what is wrong with it."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch

import seismograd as sg


@dataclass(frozen=True)
class Patient:
    """A program that trains under a watch and returns it. `expects`: the ids that would be a right diagnosis."""

    name: str
    program: Callable[[], sg.TrainingDebugger]
    expects: frozenset[str]
    slow: bool
    missed: str = ""
    """Why it is not found yet, where that is known: the test then says so, and fails once it is found."""

    def run(self, seed: int = 0) -> sg.TrainingDebugger:
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with warnings.catch_warnings():  # torch has noticed some of the faults, too
                warnings.filterwarnings(
                    "ignore", r"Using a target size|Detected call of `lr_scheduler|std\(\): degrees of freedom"
                )
                return self.program()
        finally:
            torch.set_num_threads(threads)


HEALTHY: dict[str, Patient] = {}
SICK: dict[str, Patient] = {}

Program = Callable[[], sg.TrainingDebugger]


def healthy(*, slow: bool = False) -> Callable[[Program], Program]:
    """A program with nothing wrong in it: no warning may be heard."""
    return _register(HEALTHY, (), slow)


def sick(*expects: str, slow: bool = False, missed: str = "") -> Callable[[Program], Program]:
    """A program with a fault: one of `expects` has to be among the first three findings."""
    return _register(SICK, expects, slow, missed)


def _register(
    ward: dict[str, Patient], expects: Iterable[str], slow: bool, missed: str = ""
) -> Callable[[Program], Program]:
    def register(program: Program) -> Program:
        name = program.__name__
        if name in HEALTHY or name in SICK:
            raise ValueError(f"two patients are called {name!r}")
        ward[name] = Patient(name, program, frozenset(expects), slow, missed)
        return program

    return register
