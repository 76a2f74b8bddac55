"""nn.Softmax as the last layer and nn.CrossEntropyLoss on top."""
# expects: double-softmax

import torch
import torch.nn as nn


class Iris(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Linear(4, 50)
        self.layer2 = nn.Linear(50, 20)
        self.layer3 = nn.Linear(20, 3)

    def forward(self, x):
        x = torch.relu(self.layer1(x))
        x = torch.relu(self.layer2(x))
        return torch.softmax(self.layer3(x), dim=1)


torch.manual_seed(0)
means = torch.tensor([[5.0, 3.4, 1.5, 0.2], [5.9, 2.8, 4.3, 1.3], [6.6, 3.0, 5.5, 2.0]])
y = torch.arange(3).repeat_interleave(50)
x = means[y] + 0.3 * torch.randn(150, 4)
model = Iris()
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
loss_fn = nn.CrossEntropyLoss()
for epoch in range(100):
    y_pred = model(x)
    loss = loss_fn(y_pred, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 20 == 0:
        print(epoch, loss.item())
