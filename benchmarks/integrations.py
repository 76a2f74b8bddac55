"""What the watch costs inside frameworks: blocks of watched and unwatched steps take turns within one training.

    python benchmarks/integrations.py --quick
    python benchmarks/integrations.py --only transformers --level advanced

Time is the processor's, of all threads of the process: on a busy machine the clock on the wall says more of the others.
A framework is a function in `FRAMEWORKS`: it trains for so many steps and calls `turn(model, optimizer)` after each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import seismograd as sg
from overhead import Paused, bootstrap
from seismograd.sinks import Memory

Turn = Callable[[nn.Module, Any], None]


def transformers(turn: Turn, steps: int) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

    class Turns(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            turn(kwargs["model"], kwargs["optimizer"])

    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=256, bos_token_id=0, eos_token_id=0, **sizes))
    data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 256, (256, 32))]
    with tempfile.TemporaryDirectory() as folder:
        quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no"}
        args = TrainingArguments(
            folder, max_steps=steps, use_cpu=True, dataloader_pin_memory=False, learning_rate=1e-4, **quiet
        )
        Trainer(model=model, args=args, train_dataset=data, callbacks=[Turns()]).train()


def accelerate(turn: Turn, steps: int) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model: Any = deep()
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader: Any = DataLoader(pairs_of_numbers(), batch_size=64, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    done = 0
    while done < steps:
        for x, y in loader:
            accelerator.backward(nn.functional.mse_loss(model(x), y))
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            turn(model, optimizer)
            done += 1
            if done == steps:
                break


def lightning(turn: Turn, steps: int) -> None:
    import lightning.pytorch as pl

    class Net(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = deep()

        def training_step(self, batch: Any, index: int) -> Any:
            return nn.functional.mse_loss(self.net(batch[0]), batch[1])

        def on_train_batch_end(self, outputs: Any, batch: Any, index: int) -> None:
            turn(self, self.optimizers().optimizer)

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-4)

    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = pl.Trainer(accelerator="cpu", max_steps=steps, max_epochs=-1, gradient_clip_val=1.0, **quiet)
    trainer.fit(Net(), DataLoader(pairs_of_numbers(), batch_size=64, shuffle=True))


def ignite(turn: Turn, steps: int) -> None:
    from ignite.engine import Events, create_supervised_trainer

    model = deep()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    trainer = create_supervised_trainer(model, optimizer, nn.functional.mse_loss)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda _engine: turn(model, optimizer))
    loader = DataLoader(pairs_of_numbers(), batch_size=64, shuffle=True)
    trainer.run(loader, max_epochs=-(-steps // len(loader)))


def deep() -> nn.Sequential:
    return nn.Sequential(*[part for _ in range(6) for part in (nn.Linear(512, 512), nn.ReLU())])


def pairs_of_numbers() -> TensorDataset:
    return TensorDataset(torch.randn(4096, 512), torch.randn(4096, 512))


FRAMEWORKS: dict[str, Callable[[Turn, int], None]] = {
    "transformers": transformers,
    "accelerate": accelerate,
    "lightning": lightning,
    "ignite": ignite,
}


class Turns:
    """Opens the watch after the first steps, then lets it listen in every other block, and times the blocks."""

    def __init__(self, level: str, block: int) -> None:
        self.level, self.block = level, block
        self.times: list[float] = []
        self.watch: Any = None
        self._paused: Any = None
        self._around: Any = contextlib.nullcontext()
        self._count, self._began = 0, process_time()

    def __call__(self, model: nn.Module, optimizer: Any) -> None:
        self._count += 1
        if self._count % self.block:
            return
        self.times.append((process_time() - self._began) / self.block)
        if self.watch is None:
            self.watch = sg.watch(model, optimizer, level=self.level, store=False, sinks=[Memory(100)])
            self._paused = Paused(self.watch)
            self.times.clear()
        self._around.__exit__(None, None, None)
        blocks = len(self.times)
        if blocks == 6:  # run in: what a watch may use freely at its start is taken away
            self.watch.governor.drain()
        self._around = self._paused() if blocks % 2 else contextlib.nullcontext()
        self._around.__enter__()
        self._began = process_time()

    def close(self) -> None:
        self._around.__exit__(None, None, None)
        self.watch.close()


def measure(name: str, level: str, pairs: int, block: int) -> dict[str, Any]:
    torch.manual_seed(0)
    turns = Turns(level, block)
    FRAMEWORKS[name](turns, block * (2 * pairs + 9))
    turns.close()
    times = np.array(turns.times[8 : 8 + 2 * pairs])
    samples = times.reshape(-1, 2)
    low, high = bootstrap(samples)
    ratio = float(np.median(samples[:, 1]) / np.median(samples[:, 0]))
    plain = 1e3 * float(np.median(samples[:, 0]))
    return {"framework": name, "level": level, "plain_ms": plain, "ratio": ratio, "low": low, "high": high}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=FRAMEWORKS)
    parser.add_argument("--level", choices=["basic", "advanced", "extreme"])
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    pairs, block = (12, 8) if asked.quick else (60, 20)
    rows = []
    for name in [asked.only] if asked.only else FRAMEWORKS:
        for level in [asked.level] if asked.level else ("basic", "advanced"):
            row = measure(name, level, pairs, block)
            rows.append(row)
            times = f"{row['ratio']:.3f} ({row['low']:.3f}-{row['high']:.3f})"
            print(f"{name:14} {level:10} {row['plain_ms']:8.2f} ms a step unwatched, watched {times} times that")
    if asked.out is not None:
        asked.out.write_text(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
