"""Layer-wise rates with a typo: the encoder gets 1e-13 instead of 1e-3 and stays as it was born."""
# expects: update-ratio-low, frozen-parameter, lr-too-low

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.decoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 20))

    def forward(self, x):
        return self.decoder(self.encoder(x))


torch.manual_seed(0)
mixing = torch.randn(5, 20)
model = Model()
optimizer = torch.optim.AdamW(
    [{"params": model.encoder.parameters(), "lr": 1e-13}, {"params": model.decoder.parameters(), "lr": 1e-3}]
)
for step in range(300):
    x = torch.randn(32, 5) @ mixing
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
