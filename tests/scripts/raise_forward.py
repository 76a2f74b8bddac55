"""The model itself finds that something is wrong: an own exception, with a cause, over several lines."""

# exit: 1
# stderr: ShapeMismatch: batch 7 does not fit:
# run: status=crashed steps=7

import torch
from torch import nn


class ShapeMismatch(RuntimeError):
    def __init__(self, batch, expected, got):
        super().__init__(batch, expected, got)
        self.batch, self.expected, self.got = batch, expected, got

    def __str__(self):
        return f"batch {self.batch} does not fit:\n    expected {self.expected}\n    got      {self.got}\n"


class Checked(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
        self.batches = 0

    def forward(self, x):
        try:
            output = self.body(x)
        except RuntimeError as error:
            raise ShapeMismatch(self.batches, 4, x.shape[1]) from error
        self.batches += 1
        return output


def train(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for i, x in enumerate(batches):
        optimizer.zero_grad()
        loss = (model(x) - x.mean(1, keepdim=True)).pow(2).mean()
        loss.backward()
        optimizer.step()
        print("batch", i, f"{loss.item():.5f}")
        torch.save(model.state_dict(), "weights.pt")


if __name__ == "__main__":
    torch.manual_seed(3)
    train(Checked(), [torch.randn(8, 4 if i != 7 else 5) for i in range(12)])
    print("never reached")
