"""A stateful LSTM hands its state from batch to batch and does not detach it."""
# expects: growing-graph
# exits: 1

import torch
import torch.nn as nn

torch.manual_seed(0)
series = torch.sin(torch.arange(4000) / 7.0) + 0.1 * torch.randn(4000)
rnn, head = nn.LSTM(1, 16, batch_first=True), nn.Linear(16, 1)
optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=1e-3)
state = None
for start in range(0, 3900, 50):
    x = series[start : start + 50].reshape(1, 50, 1)
    y = series[start + 1 : start + 51].reshape(1, 50, 1)
    out, state = rnn(x, state)
    loss = nn.functional.mse_loss(head(out), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
