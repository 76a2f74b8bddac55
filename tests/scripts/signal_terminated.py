"""The scheduler of the cluster ends it: SIGTERM in the middle of training, and no handler."""

# exit: -15
# exception: SIGTERM
# run: status=healthy steps=6

import os
import signal

import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    x = torch.randn(8, 4)
    optimizer.zero_grad()
    loss = (model(x) - x[:, :1]).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(f"step {step}: {loss.item():.4f}", flush=True)
    torch.save(model.state_dict(), "weights.pt")
    if step == 5:
        os.kill(os.getpid(), signal.SIGTERM)
