"""Curves, sick and healthy, and the real writers that log them."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

Row = dict[str, float]


def healthy(steps: int = 300, every: int = 1, validate: int = 30, seed: int = 0) -> Iterator[tuple[int, Row]]:
    """A loss that falls and levels off, with noise, a validation loss beside it now and then."""
    noise = random.Random(seed)
    for at in range(steps):
        loss = 2.3 * math.exp(-at / (steps / 5)) + 0.3 + 0.05 * noise.random()
        row = {"loss": loss, "grad_norm": 1.0 + 0.5 * noise.random(), "lr": 1e-3}
        if at % validate == validate - 1:
            row["val_loss"] = loss + 0.1
        yield every * (at + 1) - 1, row


def diverging(steps: int = 120) -> Iterator[tuple[int, Row]]:
    """A loss that multiplies from step to step after a good start."""
    for step, row in healthy(steps):
        factor = 1.6 ** max(0, step - 60)
        yield step, row if step < 60 else {"loss": factor, "grad_norm": 5.0 * factor, "lr": 1e-3}


def nan(steps: int = 120, at: int = 80) -> Iterator[tuple[int, Row]]:
    """A loss and a gradient that are NaN from a step on."""
    for step, row in healthy(steps):
        yield step, {**row, "loss": math.nan, "grad_norm": math.nan} if step >= at else row


def flat(steps: int = 600) -> Iterator[tuple[int, Row]]:
    """A loss that stays where it began: what guessing among ten classes gives."""
    noise = random.Random(1)
    for step in range(steps):
        yield step, {"loss": math.log(10) + noise.gauss(0.0, 0.01), "lr": 1e-3}


def overfitting(epochs: int = 40) -> Iterator[tuple[int, Row]]:
    """One value an epoch: the validation loss turns up, the training loss goes on falling."""
    noise = random.Random(2)
    for epoch in range(epochs):
        train = 2.0 * math.exp(-epoch / 8)
        validation = 0.8 + 1.2 * math.exp(-epoch / 4) + 0.02 * max(0, epoch - 12)
        yield epoch, {"loss": train, "val_loss": validation + 0.005 * noise.random()}


def _odd(loss: Callable[[int, random.Random], float], steps: int = 1000, **more: Callable[[int], float]) -> list[Row]:
    noise = random.Random(3)
    return [{"step": at, "loss": loss(at, noise), **{name: of(at) for name, of in more.items()}} for at in range(steps)]


def _falling(at: int) -> float:
    return 0.3 + 2.0 * math.exp(-at / 200)


ODD: dict[str, Callable[[], list[Row]]] = {
    "a likelihood that falls through zero": lambda: _odd(lambda at, n: 5 * math.exp(-at / 100) - 3 + n.gauss(0, 0.15)),
    "a bound far below zero": lambda: _odd(lambda at, n: -1e4 * (1 - math.exp(-at / 200)) + n.gauss(0, 300)),
    "a likelihood that falls all along": lambda: _odd(lambda at, n: n.gauss(-0.01 * at, 0.3), 2000),
    "a warm-up": lambda: _odd(
        lambda at, n: (11 if at < 5 else 3 + 8 * math.exp(-at / 80)) + n.gauss(0, 0.1),
        lr=lambda at: 3e-4 * min(1.0, at / 100),
    ),
    "a long warm-up that learns nothing": lambda: _odd(
        lambda at, n: (6.9 if at < 500 else 2 + 4.9 * math.exp((500 - at) / 700)) + n.gauss(0, 0.05),
        3000,
        lr=lambda at: 1e-6 * at,
    ),
    "a rise in the warm-up": lambda: _odd(
        lambda at, n: _falling(at) + 0.4 * math.exp(-(((at - 30) / 12) ** 2)) + n.gauss(0, 0.05),
        lr=lambda at: 2e-5 * min(50, at),
    ),
    "warm restarts": lambda: _odd(
        lambda at, n: _falling(at) + 0.2 * (1 + math.cos(math.pi * (at % 500) / 500)) + n.gauss(0, 0.06),
        1500,
        lr=lambda at: 0.05 * (1 + math.cos(math.pi * (at % 500) / 500)),
    ),
    "a policy's loss about zero": lambda: _odd(lambda at, n: n.gauss(0, 0.05) * (1 + n.random()), 1500),
    "a value function that grows": lambda: _odd(
        lambda at, n: (0.1 + 50 / (1 + math.exp((500 - at) / 80))) * math.exp(n.gauss(0, 0.5)), 1500
    ),
    "a critic that wanders": lambda: _odd(lambda at, n: -3 * math.exp(-at / 500) + n.gauss(0, 0.4), 2000),
    "two tasks in turn": lambda: _odd(lambda at, n: (3 - 2 * (at % 2)) * _falling(at) + n.gauss(0, 0.03)),
    "fine-tuning that begins low": lambda: _odd(lambda at, n: 1.7 + 0.1 * math.exp(-at / 50) + n.gauss(0, 0.12), 300),
    "a validation now and then": lambda: [
        {**row, "val_loss": row["loss"] + 0.1} if row["step"] % 250 == 249 else row
        for row in _odd(lambda at, n: _falling(at) + n.gauss(0, 0.05), 1500)
    ],
    "a small validation set": lambda: _odd(
        lambda at, n: 0.3 + 2 * math.exp(-at / 8),
        60,
        val_loss=lambda at: 0.6 + 1.6 * math.exp(-at / 6) + 0.3 * random.Random(at).random(),
    ),
    "resumed twice from a checkpoint": lambda: [
        row
        for start, end in ((0, 700), (500, 900), (800, 1000))
        for row in _odd(lambda at, n: _falling(at) + n.gauss(0, 0.05))[start:end]
    ],
}
"""Healthy runs whose logs look odd."""


SICK: dict[str, tuple[Callable[[], Iterator[tuple[int, Row]]], str]] = {
    "diverging": (diverging, "loss-explosion"),
    "nan": (nan, "nonfinite-loss"),
    "flat": (flat, "loss-plateau"),
    "overfitting": (overfitting, "overfitting"),
}


def to_tensorboard(rows: Iterator[tuple[int, Row]], folder: Path, *, new_style: bool = False) -> Path:
    """By torch's own writer, under the names that Hugging Face's Trainer uses."""
    from torch.utils.tensorboard import SummaryWriter

    names = {"loss": "train/loss", "val_loss": "eval/loss", "grad_norm": "train/grad_norm", "lr": "train/learning_rate"}
    with SummaryWriter(str(folder)) as writer:
        for step, row in rows:
            for name, value in row.items():
                writer.add_scalar(names[name], value, step, new_style=new_style)
        writer.add_text("about", "a run")
        writer.add_histogram("weights", np.arange(10.0), 0)
    return folder


def to_lightning_csv(rows: Iterator[tuple[int, Row]], folder: Path) -> Path:
    """By Lightning's CSVLogger: training and validation in rows of their own, with empty fields."""
    from lightning.pytorch.loggers import CSVLogger

    logger = CSVLogger(str(folder), name="model", flush_logs_every_n_steps=10_000)
    for step, row in rows:
        train = {f"train_{name}": value for name, value in row.items() if name != "val_loss"}
        logger.log_metrics({**train, "epoch": step // 30}, step)
        if "val_loss" in row:
            logger.log_metrics({"val_loss": row["val_loss"], "epoch": step // 30}, step)
    logger.save()
    return Path(logger.log_dir) / "metrics.csv"


@cache
def _empty_store() -> bytes:
    """MLflow's database with its tables, which take it seconds to make."""
    import mlflow

    with tempfile.TemporaryDirectory() as folder:
        mlflow.tracking.MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db").search_experiments()
        return Path(folder, "mlflow.db").read_bytes()


def to_mlflow(rows: Iterator[tuple[int, Row]], folder: Path, name: str = "first") -> str:
    """By MLflow's client, into its SQLite store."""
    import mlflow
    from mlflow.entities import Metric

    if not (folder / "mlflow.db").exists():
        (folder / "mlflow.db").write_bytes(_empty_store())
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    client = mlflow.tracking.MlflowClient(tracking_uri=uri)
    found = client.get_experiment_by_name("trials")
    experiment = found.experiment_id if found else client.create_experiment("trials", str(folder / "artifacts"))
    run = client.create_run(experiment, run_name=name)
    names = {"loss": "train_loss", "val_loss": "val_loss", "grad_norm": "grad_norm", "lr": "lr-Adam"}
    metrics = [
        Metric(names[name], value, 1_700_000_000_000 + step, step) for step, row in rows for name, value in row.items()
    ]
    for at in range(0, len(metrics), 1000):
        client.log_batch(run.info.run_id, metrics=metrics[at : at + 1000])
    client.set_terminated(run.info.run_id)
    return uri
