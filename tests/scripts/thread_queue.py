"""A data thread fills a queue while the main one trains, with a timer that never fires."""

# run: status=healthy steps=16
# when: thorough

import queue
import threading

import torch

torch.manual_seed(4)
batches = queue.Queue(maxsize=2)
local = threading.local()
local.name = "main"


def produce():
    local.name = "producer"
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for _ in range(16):
            x = torch.rand(8, 2, generator=generator)
            batches.put((x, x.prod(1, keepdim=True)))
    batches.put(None)


timer = threading.Timer(3600, print, ["late"])
timer.start()
producer = threading.Thread(target=produce)
producer.start()
model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Sigmoid(), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
while (batch := batches.get()) is not None:
    optimizer.zero_grad(set_to_none=False)
    loss = (model(batch[0]) - batch[1]).abs().mean()
    loss.backward()
    optimizer.step()
producer.join()
timer.cancel()
timer.join()
print(local.name, f"{loss.item():.5f}", threading.active_count())
torch.save(model.state_dict(), "weights.pt")
