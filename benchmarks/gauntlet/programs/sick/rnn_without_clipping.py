"""A vanilla RNN with ReLU over long sequences, no clipping: the gradient explodes."""
# expects: gradient-explosion, loss-explosion, lr-too-high, nonfinite-gradient, nonfinite-parameter, nonfinite-loss, nonfinite-activation, bad-initialization, loss-spike

import torch
import torch.nn as nn


class AddingRNN(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.rnn = nn.RNN(2, hidden, nonlinearity="relu", batch_first=True)
        nn.init.normal_(self.rnn.weight_hh_l0, std=0.18)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(h[:, -1])


def adding_problem(batch, length):
    values = torch.rand(batch, length)
    marks = torch.zeros(batch, length)
    for row in range(batch):
        marks[row, torch.randperm(length)[:2]] = 1
    return torch.stack([values, marks], -1), (values * marks).sum(1, keepdim=True)


torch.manual_seed(0)
model = AddingRNN()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(80):
    x, y = adding_problem(20, 60)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
