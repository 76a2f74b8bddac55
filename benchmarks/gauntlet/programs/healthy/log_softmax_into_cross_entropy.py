"""log_softmax in the model and CrossEntropyLoss on top: idempotent, harmless."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(12, 48), nn.Linear(48, 5)

    def forward(self, x):
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
criterion = nn.CrossEntropyLoss()
x = torch.randn(900, 12)
y = x[:, :5].argmax(1)
for epoch in range(6):
    for i in torch.randperm(900).split(30):
        optimizer.zero_grad()
        loss = criterion(net(x[i]), y[i])
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
