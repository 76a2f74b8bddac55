"""A class-based trainer with callbacks that zeroes gradients after the step, set_to_none=False."""

import torch
import torch.nn as nn


class Callback:
    def on_epoch_end(self, trainer, epoch, loss):
        pass


class PrintLoss(Callback):
    def on_epoch_end(self, trainer, epoch, loss):
        print(epoch, loss)


class Trainer:
    def __init__(self, model, optimizer, loss_fn, callbacks=()):
        self.model, self.optimizer, self.loss_fn, self.callbacks = model, optimizer, loss_fn, callbacks

    def fit(self, x, y, epochs, batch_size):
        for epoch in range(epochs):
            self.model.train()
            total = 0.0
            for i in torch.randperm(len(x)).split(batch_size):
                loss = self.loss_fn(self.model(x[i]), y[i])
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=False)
                total += loss.item() * len(i)
            for callback in self.callbacks:
                callback.on_epoch_end(self, epoch, total / len(x))


torch.manual_seed(0)
x = torch.randn(800, 10)
y = (x[:, :3] + 0.3 * torch.randn(800, 3)).argmax(1)
net = nn.Sequential(nn.Linear(10, 64), nn.ELU(), nn.Linear(64, 3))
Trainer(net, torch.optim.NAdam(net.parameters(), lr=2e-3), nn.CrossEntropyLoss(), [PrintLoss()]).fit(x, y, 6, 40)
