"""Colour constancy loss of a low-light enhancer: a root that is taken at zero for grey images."""
# expects: nonfinite-gradient
# report: https://github.com/Li-Chongyi/Zero-DCE_extension/issues/2

import torch
import torch.nn as nn


class Enhance(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x):
        curve = torch.tanh(self.conv2(torch.relu(self.conv1(x))))
        return x + curve * (x * x - x)


def colour_loss(image):
    r, g, b = image.mean((2, 3)).unbind(1)
    return torch.pow((r - g) ** 2 + (r - b) ** 2 + (b - g) ** 2, 0.5).mean()


torch.manual_seed(0)
images = torch.rand(120, 3, 12, 12) * 0.4
images[77] = 0.0  # a black frame
net = Enhance()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(3):
    for batch in images.split(6):
        out = net(batch)
        loss = colour_loss(out) + (out.mean() - 0.6) ** 2
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
