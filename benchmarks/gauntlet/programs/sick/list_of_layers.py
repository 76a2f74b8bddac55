"""Hidden layers in a plain Python list: model.parameters() does not know them."""
# expects: unregistered-parameter, unoptimized-parameter

import torch
import torch.nn as nn
import torch.nn.functional as F


class DeepNet(nn.Module):
    def __init__(self, n_in, n_hidden, n_layers, n_out):
        super().__init__()
        self.inp = nn.Linear(n_in, n_hidden)
        self.hidden = [nn.Linear(n_hidden, n_hidden) for _ in range(n_layers)]
        self.out = nn.Linear(n_hidden, n_out)

    def forward(self, x):
        x = F.relu(self.inp(x))
        for layer in self.hidden:
            x = F.relu(layer(x))
        return self.out(x)


torch.manual_seed(0)
model = DeepNet(10, 48, 3, 3)
print("parameters:", sum(p.numel() for p in model.parameters()))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x = torch.randn(960, 10)
y = (x[:, :3] * x[:, 3:6]).argmax(1)
for epoch in range(5):
    for i in torch.randperm(960).split(32):
        loss = F.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
