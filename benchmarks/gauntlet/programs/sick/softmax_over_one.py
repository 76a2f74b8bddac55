"""A binary classifier with one output and softmax over it: the prediction is always 1."""
# expects: constant-output, loss-input-mismatch, output-range
# report: https://stackoverflow.com, "softmax with one output neuron, accuracy ~ 0.5"

import torch
import torch.nn as nn


class Binary(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(14, 32)
        self.out = nn.Linear(32, 1)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x):
        return self.softmax(self.out(torch.relu(self.fc(x))))


torch.manual_seed(0)
x = torch.randn(500, 14)
y = (x[:, 0] > 0).float().unsqueeze(1)
model = Binary()
criterion = nn.BCELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(8):
    for i in torch.randperm(500).split(25):
        optimizer.zero_grad()
        loss = criterion(model(x[i]), y[i])
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
