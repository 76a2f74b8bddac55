"""SGD with weight_decay=2 and a decoder that goes to zero."""
# expects: weight-decay-dominates, loss-plateau, constant-output

import torch
import torch.nn as nn


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(30, 12)
        self.dec = nn.Linear(12, 30)

    def forward(self, x):
        return self.dec(torch.tanh(self.enc(x)))


torch.manual_seed(0)
basis = torch.randn(6, 30)
model = AutoEncoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=2.0)
for step in range(250):
    x = torch.randn(32, 6) @ basis / 6**0.5
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
