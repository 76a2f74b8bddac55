"""Forecasting log returns; a price of 0 in the table makes a return of -inf that becomes a target."""
# expects: nonfinite-input

import torch
from torch import nn, optim

torch.manual_seed(0)


def load_prices(days=400):
    prices = 20 * torch.exp(torch.cumsum(0.01 * torch.randn(days, 4), 0))
    prices[257, 1] = 0.0  # trading was halted
    return prices


prices = load_prices()
returns = torch.log(prices[1:] / prices[:-1])
window = 12
X = torch.stack([returns[i : i + window].flatten() for i in range(len(returns) - window)])
Y = returns[window:]

model = nn.Sequential(nn.Linear(window * 4, 24), nn.Tanh(), nn.Linear(24, 4))
optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
loss_fn = nn.L1Loss()

for epoch in range(4):
    for i in range(0, len(X), 16):
        prediction = model(X[i : i + 16])
        loss = loss_fn(prediction, Y[i : i + 16])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch", epoch, float(loss))
