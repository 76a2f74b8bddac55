"""Ends with an endless recursion in the model: the traceback says how often a line was repeated."""

# exit: 1
# stderr: RecursionError: maximum recursion depth exceeded
# run: status=crashed steps=2
# when: thorough
# loose: stderr

import torch


def width(n):
    return width(n + 1) if n > 1 else n


torch.manual_seed(0)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    model(torch.eye(2)).square().sum().backward()
    optimizer.step()
    print(step, width(step + 1) if step else 0)
