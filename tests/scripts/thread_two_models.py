"""Two threads, each of which trains a model of its own with its own generator."""

# run: status=healthy steps=40 runs=2
# when: thorough

import threading

import torch
from torch import nn

lines = {}


def worker(name, seed, steps, barrier):
    generator = torch.Generator().manual_seed(seed)
    model = models[name]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    barrier.wait()
    for _ in range(steps):
        x = torch.randn(16, 4, generator=generator)
        loss = nn.functional.smooth_l1_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    lines[name] = f"{name}: {steps} steps, loss {loss.item():.6f}"


torch.manual_seed(0)
models = {name: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)) for name in ("left", "right")}
barrier = threading.Barrier(2)
threads = [
    threading.Thread(target=worker, args=("left", 1, 25, barrier)),
    threading.Thread(target=worker, args=("right", 2, 15, barrier)),
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(lines["left"])
print(lines["right"])
torch.save({name: model.state_dict() for name, model in models.items()}, "weights.pt")
