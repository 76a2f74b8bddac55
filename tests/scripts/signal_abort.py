"""A failed assertion in native code, as it looks from outside: SIGABRT in the middle of training."""

# exit: -6
# run: none
# when: thorough

import os
import resource

import torch

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).abs().mean()
    loss.backward()
    if step == 3:
        os.abort()
    optimizer.step()
    print(step, f"{loss.item():.4f}", flush=True)
