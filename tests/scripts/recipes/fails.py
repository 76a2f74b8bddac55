"""Run as `python -m recipes.fails`: the traceback has the frames of runpy, as with plain python."""

# module: recipes.fails
# exit: 1
# stderr: File "<frozen runpy>", line
# run: status=crashed steps=3
# when: thorough

import torch

from .data import batches

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for number, (x, y) in enumerate(batches(5)):
    optimizer.zero_grad()
    (model(x[:, : 2 + number // 3]) - y).pow(2).mean().backward()
    optimizer.step()
    print("step", number)
