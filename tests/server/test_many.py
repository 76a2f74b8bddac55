"""Many readers at once, while a run is written: each gets a whole and true answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2

from seismograd.server import create_app

from .conftest import FREE, Writer
from .test_live import Running

READERS = 64
ROUNDS = 4


def test_sixty_four_readers_and_a_writer(store: Path, write: Callable[..., Writer], ended: Writer) -> None:
    writer = write("20260104-101500-dddddd", "busy")
    writer.train(600)
    writer.flush()
    over = threading.Event()

    def train() -> None:
        while not over.is_set():
            writer.train(20)
            writer.flush()

    running = Running(create_app(store, limits=FREE))
    base = str(running.client.base_url)
    paths = [
        "/api/runs",
        f"/api/runs/{writer.run}",
        f"/api/runs/{writer.run}/series?name=loss&name=grad/norm",
        f"/api/runs/{writer.run}/heat",
        f"/api/runs/{ended.run}/findings",
        f"/api/runs/{ended.run}/events",
        "/metrics",
        "/training-logs/debug/training/summary",
    ]

    def read(reader: int) -> list[tuple[int, str]]:
        wrong = []
        with httpx2.Client(base_url=base, timeout=60) as client:
            for at in range(ROUNDS):
                path = paths[(reader + at) % len(paths)]
                answer = client.get(path)
                if answer.status_code != 200:
                    wrong.append((answer.status_code, answer.text))
                elif "series?" in path:
                    curve = answer.json()["series"]["loss"]
                    assert curve["steps"] == sorted(set(curve["steps"]))
                    assert sum(curve["count"]) == curve["steps"][-1] + 1, "every step, once"
        return wrong

    training = threading.Thread(target=train)
    training.start()
    try:
        with ThreadPoolExecutor(READERS) as pool:
            wrong = [each for answers in pool.map(read, range(READERS)) for each in answers]
    finally:
        over.set()
        training.join(60)
        running.stop()
    assert wrong == []
