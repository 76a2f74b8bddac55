"""zero_grad once an epoch, not once a batch, in a class-based trainer."""
# expects: missing-zero-grad, accumulation-mismatch

import torch
import torch.nn as nn


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.criterion = nn.MSELoss()

    def train_batch(self, x, y):
        loss = self.criterion(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, data, epochs):
        for epoch in range(epochs):
            self.model.train()
            self.optimizer.zero_grad()
            losses = [self.train_batch(x, y) for x, y in data]
            print(epoch, sum(losses) / len(losses))


torch.manual_seed(0)
xs = torch.randn(25, 40, 6)
ys = torch.sin(xs.sum(-1, keepdim=True))
Trainer(nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 1)), 1e-3).fit(list(zip(xs, ys)), 5)
