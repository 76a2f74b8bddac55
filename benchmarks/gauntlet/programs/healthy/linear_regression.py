"""The first program of many: a line through points, full batch, SGD."""

import torch
from torch import nn

torch.manual_seed(0)
X = torch.arange(0, 1, 0.02)[torch.randperm(50)].unsqueeze(1)
y = 0.7 * X + 0.3


class LinearRegressionModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(1))
        self.bias = nn.Parameter(torch.randn(1))

    def forward(self, x):
        return self.weights * x + self.bias


model_0 = LinearRegressionModel()
loss_fn = nn.L1Loss()
optimizer = torch.optim.SGD(params=model_0.parameters(), lr=0.01)
split = 40
for epoch in range(200):
    model_0.train()
    y_pred = model_0(X[:split])
    loss = loss_fn(y_pred, y[:split])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model_0.eval()
    with torch.inference_mode():
        test_loss = loss_fn(model_0(X[split:]), y[split:])
    if epoch % 40 == 0:
        print(epoch, loss.item(), test_loss.item())
