"""Accumulation counter is never reset and compared with '==', so the optimizer steps once, at the 4th batch, and never again."""
# expects: missing-step, accumulation-mismatch
# report: folklore
import torch
import torch.nn as nn


class Trainer:
    def __init__(self, model, lr=1e-3, accumulate=4):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.accumulate = accumulate
        self.counter = 0
        self.criterion = nn.CrossEntropyLoss()

    def train_batch(self, x, y):
        loss = self.criterion(self.model(x), y) / self.accumulate
        loss.backward()
        self.counter += 1
        if self.counter == self.accumulate:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.item() * self.accumulate

    def run(self, data, epochs):
        x, y = data
        for epoch in range(epochs):
            total = 0.0
            chunks = torch.randperm(len(x)).split(16)
            for idx in chunks:
                total += self.train_batch(x[idx], y[idx])
            print(f"epoch {epoch} loss {total/len(chunks):.4f}")


def spirals(n):
    y = torch.randint(3, (n,))
    r = torch.rand(n)
    th = r * 5 + y * 2.094 + 0.15 * torch.randn(n)
    return torch.stack([r * th.cos(), r * th.sin()], 1), y


torch.manual_seed(5)
Trainer(nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))).run(spirals(1600), 6)
