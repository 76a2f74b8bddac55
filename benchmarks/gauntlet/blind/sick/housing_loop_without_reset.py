"""The loop never calls zero_grad: gradients of all earlier batches pile up, the loss swings and grows instead of settling."""
# expects: missing-zero-grad
# report: https://thecodeforge.io/ml-ai/pytorch-training-loop/
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
X = torch.randn(2048, 13)
coef = torch.randn(13, 1)
Y = X @ coef + 0.5 * torch.relu(X[:, :1] * X[:, 1:2]) + 0.1 * torch.randn(2048, 1)
Y = (Y - Y.mean()) / Y.std()

loader = DataLoader(TensorDataset(X, Y), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(13, 40), nn.ReLU(), nn.Linear(40, 1))
loss_fn = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for epoch in range(10):
    for batch, (x, y) in enumerate(loader):
        pred = model(x)
        loss = loss_fn(pred, y)
        loss.backward()
        optimizer.step()
    print(f"epoch: {epoch} loss: {loss.item():>7f}")
