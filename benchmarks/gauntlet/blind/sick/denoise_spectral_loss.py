"""A spectral magnitude loss sqrt(re^2+im^2) on clips with digital silence: frames that are exactly zero have a NaN gradient although the loss is finite."""
# expects: nonfinite-gradient, nonfinite-parameter
# report: folklore
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
T = 256


def clips(n):
    t = torch.linspace(0, 1, T)
    f = torch.randint(4, 20, (n, 1)).float()
    clean = torch.sin(2 * torch.pi * f * t) * (0.5 + 0.5 * torch.rand(n, 1))
    gate = (t[None] > torch.rand(n, 1) * 0.4).float()
    clean = clean * gate
    noise = 0.2 * torch.randn(n, T) * gate  # silence is digital silence
    return (clean + noise)[:, None], clean[:, None]


class Mask(nn.Module):
    """predicts a gain in [0, inf) for every sample"""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv1d(1, 24, 9, padding=4)
        self.b = nn.Conv1d(24, 24, 9, padding=4)
        self.c = nn.Conv1d(24, 1, 9, padding=4)

    def forward(self, x):
        h = F.relu(self.a(x))
        h = F.relu(self.b(h))
        return x * (1 + self.c(h))


def magnitude(x, n=32):
    frames = x.squeeze(1).unfold(1, n, n)
    spec = torch.fft.rfft(frames)
    return torch.sqrt(spec.real ** 2 + spec.imag ** 2)


def loss_fn(out, target):
    return F.mse_loss(out, target) + 0.05 * F.l1_loss(magnitude(out), magnitude(target))


net = Mask()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(180):
    x, y = clips(32)
    out = net(x)
    loss = loss_fn(out, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0:
        print(step, round(loss.item(), 5), "snr in", round((10 * torch.log10(y.pow(2).mean() / (x - y).pow(2).mean())).item(), 2),
              "out", round((10 * torch.log10(y.pow(2).mean() / (out - y).pow(2).mean())).item(), 2))
