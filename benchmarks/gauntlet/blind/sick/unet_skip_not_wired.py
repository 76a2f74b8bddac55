"""The skip path (three conv layers) is built in __init__ and forgotten in forward: its parameters never get a gradient."""
# expects: unused-parameter
# report: https://discuss.pytorch.org/t/how-to-find-the-unused-parameters-in-network/63948
import torch
import torch.nn as nn
import torch.nn.functional as F


class DenoiseNet(nn.Module):
    def __init__(self, ch=12):
        super().__init__()
        self.enc1 = nn.Conv2d(1, ch, 3, padding=1)
        self.enc2 = nn.Conv2d(ch, ch * 2, 3, stride=2, padding=1)
        self.skip = nn.Sequential(nn.Conv2d(ch, ch, 1), nn.ReLU(), nn.Conv2d(ch, ch, 1), nn.ReLU(), nn.Conv2d(ch, ch, 1))
        self.dec = nn.ConvTranspose2d(ch * 2, ch, 2, stride=2)
        self.final = nn.Conv2d(ch, 1, 3, padding=1)

    def forward(self, x):
        e1 = F.relu(self.enc1(x))
        e2 = F.relu(self.enc2(e1))
        d = F.relu(self.dec(e2))
        return self.final(d)


def pictures(n, s=16):
    g = torch.linspace(-1, 1, s)
    a, b, c = torch.randn(3, n, 1, 1)
    img = torch.sin(3 * (a * g[None, :, None] + b * g[None, None, :]) + c)
    return img[:, None]


if __name__ == "__main__":
    torch.manual_seed(0)
    net = DenoiseNet()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.0)
    for it in range(201):
        clean = pictures(16)
        noisy = clean + 0.4 * torch.randn_like(clean)
        loss = F.mse_loss(net(noisy), clean)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if it % 20 == 0:
            print(f"it {it} mse {loss.item():.4f}")
