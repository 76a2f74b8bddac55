"""Says how many threads torch may use before it imports torch: too late afterwards."""

# run: status=healthy steps=5
# when: thorough

import os
import sys

print("torch" in sys.modules, "numpy" in sys.modules, os.environ.get("OMP_NUM_THREADS"))
os.environ["OMP_NUM_THREADS"] = "2"
os.environ["TORCH_LOGS_FORMAT"] = "%(message)s"

import torch

print(torch.get_num_threads(), os.environ["OMP_NUM_THREADS"])
torch.set_num_interop_threads(1)  # fails once anything has run in parallel
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    loss = model(torch.eye(8)).square().mean()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.6f}", torch.get_num_threads())
torch.save(model.state_dict(), "weights.pt")
