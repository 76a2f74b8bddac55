"""A finaliser that fails is told on stderr and ignored, in the middle of training and at exit."""

# stderr: Exception ignored in: <function Batch.__del__
# stderr: RuntimeError: batch 3 was never used
# run: status=healthy steps=6
# when: thorough

import sys

import torch


class Batch:
    def __init__(self, number):
        self.number, self.values, self.used = number, torch.randn(4, 2), False

    def __del__(self):
        if not self.used:
            raise RuntimeError(f"batch {self.number} was never used")


torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(7):
    batch = Batch(number)
    if number == 3:
        del batch
        continue
    optimizer.zero_grad()
    model(batch.values).square().mean().backward()
    optimizer.step()
    batch.used = True

seen = []
sys.unraisablehook = lambda args: seen.append(str(args.exc_value))
Batch(99)
print(seen)
torch.save(model.state_dict(), "weights.pt")
