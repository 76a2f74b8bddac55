"""Training inside an event loop, with a heartbeat and a queue of batches next to it."""
# run: status=healthy steps=32
import asyncio

import torch
from torch import nn


async def produce(queue: asyncio.Queue, n: int) -> None:
    g = torch.Generator().manual_seed(0)
    w = torch.randn(6, 1, generator=g)
    for _ in range(n):
        x = torch.randn(32, 6, generator=g)
        await queue.put((x, x @ w))
    await queue.put(None)


async def train(queue: asyncio.Queue, model: nn.Module) -> int:
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    n = 0
    while (batch := await queue.get()) is not None:
        x, y = batch
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        await asyncio.sleep(0)
        opt.step()
        n += 1
        if n % 8 == 0:
            print("step", n, "loss", loss.item())
    return n


async def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
    queue: asyncio.Queue = asyncio.Queue(maxsize=4)
    beats = 0

    async def heartbeat():
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    heart = asyncio.create_task(heartbeat())
    async with asyncio.TaskGroup() as tg:
        tg.create_task(produce(queue, 32))
        steps = tg.create_task(train(queue, model))
    heart.cancel()
    print("trained", steps.result(), "steps,", beats, "heartbeats")
    torch.save(model.state_dict(), "weights.pt")


asyncio.run(main())
