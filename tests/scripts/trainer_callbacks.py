"""A home-made Trainer with callbacks, as every company has one."""

# run: status=healthy steps=48
# when: thorough

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Iterator, Protocol

import torch
from torch import Tensor, nn


@dataclass
class Config:
    lr: float = 3e-3
    epochs: int = 6
    batch_size: int = 32
    max_grad_norm: float = 1.0
    out_dir: str = "out"


@dataclass
class State:
    epoch: int = 0
    global_step: int = 0
    history: list[dict[str, float]] = field(default_factory=list)


class Callback(Protocol):
    def on_step_end(self, trainer: "Trainer", loss: float) -> None: ...
    def on_epoch_end(self, trainer: "Trainer") -> None: ...


class PrintCallback:
    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_step_end(self, trainer: "Trainer", loss: float) -> None:
        self.losses.append(loss)

    def on_epoch_end(self, trainer: "Trainer") -> None:
        mean = sum(self.losses) / len(self.losses)
        self.losses.clear()
        trainer.state.history.append({"epoch": trainer.state.epoch, "loss": mean})
        print(f"[epoch {trainer.state.epoch}] step={trainer.state.global_step} loss={mean:.8f}")


class CheckpointCallback:
    def on_step_end(self, trainer: "Trainer", loss: float) -> None:
        pass

    def on_epoch_end(self, trainer: "Trainer") -> None:
        if trainer.state.epoch % 3 == 2:
            trainer.save(f"checkpoint-{trainer.state.global_step}.pt")


class Trainer:
    def __init__(self, model: nn.Module, config: Config, callbacks: list[Callback]) -> None:
        self.model, self.config, self.callbacks = model, config, callbacks
        self.state = State()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=0.01)
        self.out_dir = Path(config.out_dir)
        self.out_dir.mkdir(exist_ok=True)

    def _batches(self, x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for index in torch.randperm(len(x)).split(self.config.batch_size):
            yield x[index], y[index]

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        return nn.functional.cross_entropy(self.model(x), y)

    def fit(self, x: Tensor, y: Tensor) -> State:
        for self.state.epoch in range(self.config.epochs):
            self.model.train()
            for batch in self._batches(x, y):
                loss = self.training_step(batch)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
                self.state.global_step += 1
                for callback in self.callbacks:
                    callback.on_step_end(self, loss.item())
            for callback in self.callbacks:
                callback.on_epoch_end(self)
        return self.state

    def save(self, name: str) -> None:
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "rng": torch.get_rng_state(),
                "step": self.state.global_step,
            },
            self.out_dir / name,
        )


if __name__ == "__main__":
    torch.manual_seed(7)
    config = Config()
    x = torch.randn(256, 16)
    y = (x[:, :3] @ torch.randn(3, 5)).argmax(1)
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 5))
    trainer = Trainer(model, config, [PrintCallback(), CheckpointCallback()])
    state = trainer.fit(x, y)
    (trainer.out_dir / "history.json").write_text(json.dumps({"config": asdict(config), "history": state.history}))
