"""A feature of a dict batch is a log-return that was divided by a price of 0: Inf."""
# op: -
# phase: input
# module: -
# conditions: data dict-batch kwargs

import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.asset = nn.Embedding(10, 4)
        self.rnn = nn.LSTM(2 + 4, 8, batch_first=True)
        self.out = nn.Linear(8, 1)

    def forward(self, asset, history, volume):
        seq = torch.stack([history, volume], -1)
        cond = self.asset(asset)[:, None].expand(-1, seq.shape[1], -1)
        h, _ = self.rnn(torch.cat([seq, cond], -1))
        return self.out(h[:, -1])


def make_batch(i):
    batch = {
        "asset": torch.randint(0, 10, (6,)),
        "history": torch.randn(6, 7) * 0.01,
        "volume": torch.rand(6, 7),
    }
    if i == 2:
        batch["history"][4, 3] = torch.tensor(1.0) / torch.tensor(0.0)
    return batch, torch.randn(6, 1) * 0.01


torch.manual_seed(0)
model = Forecaster()
opt = torch.optim.Adam(model.parameters())
for i in range(5):
    batch, y = make_batch(i)
    prediction = model(**batch)  # <-- origin
    # tanh squeezes the Inf: only NaN gradients tell
    loss = torch.nn.functional.mse_loss(prediction, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
