"""Writes all it prints to a log file too, with a stdout and a stderr of its own."""

# run: status=healthy steps=10
# when: thorough

import sys

import torch


class Tee:
    def __init__(self, stream, path):
        self.stream, self.file = stream, open(path, "w")

    def write(self, text):
        self.stream.write(text)
        self.file.write(text)

    def flush(self):
        self.stream.flush()
        self.file.flush()


sys.stdout = Tee(sys.stdout, "out.log")
sys.stderr = Tee(sys.stderr, "err.log")

torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    x = torch.randn(8, 2)
    optimizer.zero_grad()
    loss = (model(x) - x[:, 1:]).square().mean()
    loss.backward()
    optimizer.step()
    print("step", step, f"{loss.item():.5f}")
print("done", file=sys.stderr)
torch.save(model.state_dict(), "weights.pt")
