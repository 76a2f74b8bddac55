"""An exponential moving average by hand, as in diffusion code: the copy is made once and never trained."""
# run: status=healthy steps=50
# when: thorough
import copy
import torch
import torch.nn as nn

torch.manual_seed(1337)


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.module = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.module.state_dict().values(), model.state_dict().values()):
            e.lerp_(p, 1 - self.decay) if e.dtype.is_floating_point else e.copy_(p)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(10, 32)
        self.inp = nn.Linear(2, 32)
        self.out = nn.Sequential(nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 2))

    def forward(self, x, t):
        return self.out(self.inp(x) + self.time(t))


alphas = torch.cumprod(1 - torch.linspace(1e-2, 0.4, 10), 0)
model = Denoiser()
ema = EMA(model, decay=0.95)
opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
for step in range(50):
    x0 = torch.randn(128, 2) * 0.1 + torch.tensor([1.0, -1.0])
    t = torch.randint(0, 10, (128,))
    noise = torch.randn_like(x0)
    a = alphas[t, None]
    loss = (model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t) - noise).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema.update(model)
    if step % 10 == 9:
        with torch.inference_mode():
            gap = sum((p - e).norm() for p, e in zip(model.parameters(), ema.module.parameters()))
        print(step + 1, loss.item(), gap.item())
torch.save({"model": model.state_dict(), "ema": ema.module.state_dict()}, "weights.pt")
