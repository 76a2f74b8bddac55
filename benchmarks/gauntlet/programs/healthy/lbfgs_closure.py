"""L-BFGS with a closure on a sine prediction task (pytorch/examples time_sequence_prediction)."""

import torch
import torch.nn as nn


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1 = nn.LSTMCell(1, 16)
        self.linear = nn.Linear(16, 1)

    def forward(self, x):
        outputs = []
        h = torch.zeros(x.size(0), 16, dtype=x.dtype)
        c = torch.zeros(x.size(0), 16, dtype=x.dtype)
        for t in x.split(1, dim=1):
            h, c = self.lstm1(t, (h, c))
            outputs.append(self.linear(h))
        return torch.cat(outputs, dim=1)


torch.manual_seed(0)
phase = torch.rand(12, 1, dtype=torch.float64) * 6
data = torch.sin(torch.arange(40, dtype=torch.float64)[None] / 4 + phase)
seq = Sequence().double()
criterion = nn.MSELoss()
optimizer = torch.optim.LBFGS(seq.parameters(), lr=0.8, max_iter=10)
for i in range(5):

    def closure():
        optimizer.zero_grad()
        loss = criterion(seq(data[:, :-1]), data[:, 1:])
        loss.backward()
        return loss

    print("STEP:", i, optimizer.step(closure).item())
