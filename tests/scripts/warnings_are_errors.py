"""Strict: every warning is an error. Named parameters, a float16 loss scaled by hand, a NaN check of everything."""
# run: status=healthy steps=30
# when: thorough
import warnings

warnings.simplefilter("error")

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.AdamW(model.named_parameters(), lr=5e-3)
scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.99)
x = torch.randn(128, 10)
y = x[:, :4].argmax(1)
SCALE = 1024.0
for step in range(30):
    i = torch.randint(128, (32,))
    h = model[0](x[i])
    h.retain_grad()
    loss = nn.functional.cross_entropy(model[3](model[2](model[1](h))), y[i])
    (loss * SCALE).backward()
    for p in model.parameters():
        p.grad.div_(SCALE)
    assert torch.isfinite(h.grad).all()
    opt.step()
    opt.zero_grad()
    scheduler.step()
    if step % 6 == 5:
        print(step + 1, loss.item(), opt.param_groups[0]["param_names"][0])
torch.save(model.state_dict(), "weights.pt")
