"""Facts about the order of things in the loop, written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from seismograd.records import Reading

PLACES = {name: {"file": "train.py", "line": 7, "code": f"{name}()"} for name in ("step", "backward", "zero_grad")}


class Order:
    """Makes readings of turns, and runs detectors over them."""

    @staticmethod
    def turn(**told: Any) -> dict[str, Any]:
        """A healthy turn, and what is different about this one."""
        return {
            "optimizer": 0,
            "kind": "SGD",
            "steps": 5,
            "clears": 5,
            "places": PLACES,
            "whole": True,
            "order": ["zero_grad", "forward", "backward", "step"],
            "backwards": 1,
            "kept": 1,
            "fresh": 1,
            "thrown": 0,
            "moved": False,
            "mean": True,
            "divisors": [],
            "alike": True,
            "one_line": True,
            "uncleared": False,
            "left": None,
            "strange": 0,
            "empty": False,
            "handmade": False,
            "clips": [],
            "limit": 0.0,
            "scale": None,
            "scheduled_early": False,
        } | told

    @staticmethod
    def waiting(**told: Any) -> dict[str, Any]:
        """An optimizer that was never stepped."""
        return {
            "optimizer": 0,
            "kind": "SGD",
            "steps": 0,
            "backwards": 12,
            "rounds": 11,
            "clearer": "optimizer",
            "schedules": 0,
            "samples": 32,
            "training": True,
            "others": False,
            "tried": False,
            "attacks": False,
            "moved": False,
            "order": ["zero_grad", "forward", "backward"],
            "places": PLACES,
        } | told

    @staticmethod
    def schedule(**told: Any) -> dict[str, Any]:
        """A `StepLR` that was stepped with every batch."""
        return {
            "optimizer": 0,
            "kind": "StepLR",
            "count": 40,
            "each_step": 40,
            "ahead": 0,
            "lr": 0.1,
            "peak": 0.1,
            "fell": 0,
            "settings": {"step_size": 10.0, "gamma": 0.1},
            "made": None,
        } | told

    @staticmethod
    def reading(step: int, *turns: dict[str, Any], **told: Any) -> Reading:
        facts = {
            "turns": list(turns),
            "waiting": [],
            "schedules": [],
            "several": False,
            "epoch": None,
            "epochs": 1,
            "over": False,
            "loads": False,
        }
        return Reading(step, facts={"order": facts | told})

    @staticmethod
    def run(detector: Any, *readings: Reading) -> list[Any]:
        checker = detector.start()
        found = [checker.check(one) for one in readings]
        return [finding for finding in found if finding is not None]

    @classmethod
    def turns(cls, count: int, **told: Any) -> list[Reading]:
        """So many steps that are all alike."""
        return [cls.reading(step, cls.turn(**told)) for step in range(count)]


@pytest.fixture
def order() -> type[Order]:
    return Order
