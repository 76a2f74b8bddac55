"""Feature extraction under torch.no_grad() was kept when the encoder was to be fine-tuned too."""
# expects: frozen-parameter, missing-gradient, unused-parameter, detached-loss

import torch
import torch.nn as nn


class FineTune(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.classifier = nn.Linear(32, 5)

    def forward(self, x):
        with torch.no_grad():
            features = self.encoder(x)
        return self.classifier(features)


torch.manual_seed(0)
model = FineTune()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x = torch.randn(600, 30)
y = (x[:, :5] * x[:, 5:10]).argmax(1)
for epoch in range(5):
    for i in torch.randperm(600).split(30):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
