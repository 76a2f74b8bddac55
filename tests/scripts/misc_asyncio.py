"""An asyncio program: a producer, a trainer, and a signal handler of the loop that stops both."""

# run: status=healthy steps=9
# when: thorough

import asyncio
import os
import signal

import torch


async def produce(queue):
    generator = torch.Generator().manual_seed(0)
    while True:
        await queue.put(torch.randn(8, 2, generator=generator))
        await asyncio.sleep(0)


async def train(queue, stop):
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = 0
    while not stop.is_set():
        x = await queue.get()
        optimizer.zero_grad()
        loss = (model(x) - x[:, :1]).square().mean()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps == 9:
            os.kill(os.getpid(), signal.SIGTERM)
            await stop.wait()
    torch.save(model.state_dict(), "weights.pt")
    return steps, round(loss.item(), 5)


async def main():
    stop, queue = asyncio.Event(), asyncio.Queue(2)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    producer = asyncio.create_task(produce(queue))
    print(await train(queue, stop), "stopped by a signal:", stop.is_set())
    producer.cancel()
    try:
        await producer
    except asyncio.CancelledError:
        print("producer cancelled")


asyncio.run(main())
print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
