"""The auxiliary loss is added with .item(): it is printed, and trains nothing."""
# expects: detached-loss, missing-gradient, unused-parameter

import torch
import torch.nn as nn


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 48), nn.ReLU())
        self.main = nn.Linear(48, 4)
        self.aux = nn.Linear(48, 12)

    def forward(self, x):
        h = self.trunk(x)
        return self.main(h), self.aux(h)


torch.manual_seed(0)
model = TwoHeads()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x_all = torch.randn(640, 12)
y_all = x_all[:, :4].argmax(1)
for epoch in range(5):
    for i in torch.randperm(640).split(32):
        logits, reconstruction = model(x_all[i])
        main_loss = nn.functional.cross_entropy(logits, y_all[i])
        aux_loss = nn.functional.mse_loss(reconstruction, x_all[i])
        loss = main_loss + 0.5 * aux_loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, main_loss.item(), aux_loss.item())
