"""zero_grad stands between backward and step, so each step applies zero gradients: 1-D conv keyword classifier stays at chance."""
# expects: lost-gradient
# report: https://velog.io/@rhss10/%EA%B8%B0%EB%B3%B8-optimizer.zerograd%EB%8A%94-%EC%96%B4%EB%94%94%EC%97%90-%EB%84%A3%EC%96%B4%EC%A3%BC%EC%96%B4%EC%95%BC-%ED%95%A0%EA%B9%8C
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1)


def tones(n, length=160):
    t = torch.arange(length) / length
    y = torch.randint(5, (n,))
    f = 4.0 + 5.0 * y[:, None] + torch.rand(n, 1)
    return (torch.sin(2 * torch.pi * (f * t + torch.rand(n, 1))) + 0.5 * torch.randn(n, length))[:, None], y


class KWS(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv1d(1, 16, 15, stride=2)
        self.b1 = nn.BatchNorm1d(16)
        self.c2 = nn.Conv1d(16, 32, 7, stride=2)
        self.b2 = nn.BatchNorm1d(32)
        self.fc = nn.Linear(32, 5)

    def forward(self, x):
        x = F.relu(self.b1(self.c1(x)))
        x = F.relu(self.b2(self.c2(x)))
        return self.fc(x.mean(-1))


def train_one(model, opt, x, y):
    model.train()
    out = model(x)
    loss = F.cross_entropy(out, y)
    loss.backward()
    opt.zero_grad()
    opt.step()
    return loss.item(), (out.argmax(1) == y).float().mean().item()


net = KWS()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(250):
    l, a = train_one(net, opt, *tones(32))
    if step % 25 == 0:
        print(f"step {step} loss {l:.4f} acc {a:.3f}")
