"""TensorBoard's writer and mlflow's SQLite store, given the same readings."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from seismograd.records import Reading


def values(reading: Reading) -> Iterable[tuple[str, float]]:
    """A reading as the peers take it: numbers with names, one for each layer and measure."""
    yield from reading.scalars.items()
    for kind, table in reading.tensors.items():
        for measure, column in table.columns.items():
            for name, value in zip(table.names, column, strict=True):
                yield f"{kind}/{measure}/{name}", float(value)


class Peer(Protocol):
    """A place to which readings are written, and from which a series is read."""

    name: str

    def write(self, reading: Reading) -> None: ...
    def close(self) -> None: ...
    def size(self) -> int: ...
    def losses(self) -> int:
        """Opens it anew and reads the whole series of the loss: how many there are."""
        ...


class TensorBoard:
    """`SummaryWriter`, which also has a queue and a thread; it keeps every value for ever."""

    name = "TensorBoard SummaryWriter"

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._folder = folder
        self._writer: Any = SummaryWriter(str(folder))

    def write(self, reading: Reading) -> None:
        for name, value in values(reading):
            self._writer.add_scalar(name, value, reading.step)

    def close(self) -> None:
        self._writer.close()

    def size(self) -> int:
        return sum(path.stat().st_size for path in self._folder.iterdir())

    def losses(self) -> int:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(self._folder), size_guidance={"scalars": 0})
        events.Reload()
        return len(events.Scalars("loss"))


class MLflow:
    """mlflow's SQLite store, in its largest batches."""

    name = "mlflow, SQLite"
    _BATCH = 1000

    def __init__(self, folder: Path) -> None:
        logging.disable(logging.INFO)  # it tells of its migrations
        from mlflow.entities import Metric
        from mlflow.tracking import MlflowClient

        folder.mkdir(parents=True)
        self._path, self._metric = folder / "mlflow.db", Metric
        self._client: Any = MlflowClient(f"sqlite:///{self._path}")
        experiment = self._client.create_experiment("benchmark")
        self._run = self._client.create_run(experiment).info.run_id
        self._waiting: list[Any] = []

    def write(self, reading: Reading) -> None:
        now = int(time.time() * 1000)
        self._waiting += [self._metric(name, value, now, reading.step) for name, value in values(reading)]
        while len(self._waiting) >= self._BATCH:
            self._client.log_batch(self._run, self._waiting[: self._BATCH])
            del self._waiting[: self._BATCH]

    def close(self) -> None:
        self._client.log_batch(self._run, self._waiting)

    def size(self) -> int:
        return sum(path.stat().st_size for path in self._path.parent.glob("mlflow.db*"))

    def losses(self) -> int:
        from mlflow.tracking import MlflowClient

        client = MlflowClient(f"sqlite:///{self._path}")
        return len(client.get_metric_history(self._run, "loss"))


PEERS: tuple[type[Peer], ...] = (TensorBoard, MLflow)
