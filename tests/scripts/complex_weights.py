"""Complex parameters: a learned filter in the frequency domain."""
# run: status=healthy steps=60
# when: thorough
import torch
from torch import nn

torch.manual_seed(0)


class FourierFilter(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.gain = nn.Parameter(0.1 * torch.randn(n // 2 + 1, dtype=torch.cfloat))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.scale * torch.fft.irfft(torch.fft.rfft(x) * self.gain, n=x.shape[-1])


x = torch.randn(64, 32)
y = (x + x.roll(1, -1) + x.roll(2, -1)) / 3
net = FourierFilter(32)
opt = torch.optim.Adam(net.parameters(), lr=0.03)
for step in range(60):
    loss = (net(x) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if step % 12 == 11:
        print(step + 1, loss.item(), net.gain.grad.dtype)
torch.save(net.state_dict(), "weights.pt")
