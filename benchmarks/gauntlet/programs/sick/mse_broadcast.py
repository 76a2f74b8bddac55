"""Predictions (N, 1), targets (N,): the difference is (N, N) and the mean is learned."""
# expects: broadcast-loss
# report: the warning "Using a target size that is different to the input size", silenced or overlooked

import warnings

import torch
import torch.nn as nn

warnings.filterwarnings("ignore")
torch.manual_seed(0)
X = torch.randn(1000, 8)
y = 3 * X[:, 0] - 2 * X[:, 1] + 0.1 * torch.randn(1000)
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.MSELoss()
for epoch in range(8):
    for i in range(0, 1000, 50):
        optimizer.zero_grad()
        loss = criterion(model(X[i : i + 50]), y[i : i + 50])
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
