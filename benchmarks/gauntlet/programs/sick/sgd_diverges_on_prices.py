"""Linear regression on raw house sizes in square feet with the tutorial's lr of 0.01."""
# expects: lr-too-high, loss-explosion, unnormalized-input, unnormalized-target, gradient-explosion, nonfinite-loss, nonfinite-gradient, nonfinite-parameter
# report: https://stackoverflow.com, "pytorch linear regression loss increases to inf / nan"

import torch

torch.manual_seed(0)
size = torch.empty(100, 1).uniform_(500, 4000)
price = 150 * size + 20000 + 8000 * torch.randn(100, 1)

model = torch.nn.Linear(1, 1)
criterion = torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for epoch in range(100):
    y_pred = model(size)
    loss = criterion(y_pred, price)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 20 == 0:
        print("epoch {}, loss {}".format(epoch, loss.item()))
