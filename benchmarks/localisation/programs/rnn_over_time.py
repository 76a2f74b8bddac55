"""A cell unrolled over time divides by the gap between two events; at the sixth step the gap is 0."""
# op: aten.reciprocal|aten.div
# phase: forward
# module: cell
# conditions: rnn time model called-several-times

import torch
from torch import nn


class RateCell(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.hidden = nn.Linear(size, size)
        self.input = nn.Linear(1, size)

    def forward(self, gap, h):
        rate = 1.0 / gap  # <-- origin
        return torch.tanh(self.hidden(h) + self.input(rate))


class EventModel(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.size = size
        self.cell = RateCell(size)
        self.out = nn.Linear(size, 1)

    def forward(self, gaps):
        h = gaps.new_zeros(len(gaps), self.size)
        for t in range(gaps.shape[1]):
            h = self.cell(gaps[:, t : t + 1], h)
        return self.out(h)


torch.manual_seed(0)
model = EventModel()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(6):
    gaps = torch.rand(5, 8) + 0.1
    if step == 3:
        gaps[2, 5] = 0.0  # two events at once
    loss = nn.functional.mse_loss(model(gaps), gaps.sum(1, keepdim=True))
    opt.zero_grad()
    loss.backward()
    opt.step()
