"""Ctrl-C in the middle of training saves and goes on to evaluate, as notebooks and tutorials do."""

# run: status=healthy steps=12
# when: thorough

import os
import signal

import torch

torch.manual_seed(0)
x = torch.randn(64, 5)
y = (x.sum(1) > 0).long()
model = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

print("-" * 40)
try:
    for epoch in range(100):
        for i in range(0, 64, 16):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x[i : i + 16]), y[i : i + 16])
            loss.backward()
            optimizer.step()
        print(f"| epoch {epoch:3d} | loss {loss.item():5.3f}")
        if epoch == 2:
            os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("-" * 40)
    print("Exiting from training early")

torch.save(model.state_dict(), "weights.pt")
with torch.no_grad():
    print("right:", (model(x).argmax(1) == y).sum().item(), "of 64")
