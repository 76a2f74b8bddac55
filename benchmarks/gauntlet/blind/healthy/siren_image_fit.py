"""SIREN fitting one image from coordinates: sine activations with omega 30 and peculiar uniform init, the same full batch of pixels every step, memorising is the aim."""
# expects:
# source: https://arxiv.org/abs/2006.09661
import math
import torch
from torch import nn

torch.manual_seed(0)


class Sine(nn.Module):
    def __init__(self, i, o, first=False, w0=30.0):
        super().__init__()
        self.lin, self.w0 = nn.Linear(i, o), w0
        with torch.no_grad():
            b = 1 / i if first else math.sqrt(6 / i) / w0
            self.lin.weight.uniform_(-b, b)

    def forward(self, x):
        return torch.sin(self.w0 * self.lin(x))


class Siren(nn.Module):
    def __init__(self, h=64):
        super().__init__()
        self.net = nn.Sequential(Sine(2, h, first=True), Sine(h, h), Sine(h, h))
        self.final = nn.Linear(h, 1)
        with torch.no_grad():
            b = math.sqrt(6 / h) / 30
            self.final.weight.uniform_(-b, b)

    def forward(self, x):
        return self.final(self.net(x))


s = 40
yy, xx = torch.meshgrid(torch.linspace(-1, 1, s), torch.linspace(-1, 1, s), indexing="ij")
coords = torch.stack([xx, yy], -1).view(-1, 2)
image = (torch.sin(8 * xx) * torch.cos(6 * yy) * 0.5 + ((xx ** 2 + yy ** 2) < 0.3).float() - 0.25).view(-1, 1)
model = Siren()
opt = torch.optim.Adam(model.parameters(), lr=3e-4)
for step in range(300):
    loss = ((model(coords) - image) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 60 == 59:
        psnr = 10 * math.log10((image.max() - image.min()).item() ** 2 / loss.item())
        print(f"Step {step + 1}, Total loss {loss.item():.6f}, PSNR {psnr:.2f} dB")
