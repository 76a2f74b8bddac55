"""Two networks that teach each other, in one loop, each with its own optimizer."""
# run: status=healthy steps=30
# when: thorough
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
x = torch.randn(256, 10)
y = x[:, :4].argmax(1)
nets = [nn.Sequential(nn.Linear(10, h), nn.ReLU(), nn.Linear(h, 4)) for h in (32, 64)]
opts = [torch.optim.Adam(n.parameters(), lr=5e-3) for n in nets]
for step in range(30):
    i = torch.randint(256, (48,))
    logits = [n(x[i]) for n in nets]
    for k in (0, 1):
        kl = F.kl_div(F.log_softmax(logits[k], 1), F.softmax(logits[1 - k].detach(), 1), reduction="batchmean")
        loss = F.cross_entropy(logits[k], y[i]) + kl
        opts[k].zero_grad()
        loss.backward()
        opts[k].step()
    if step % 6 == 5:
        print(step + 1, [round(F.cross_entropy(l, y[i]).item(), 6) for l in logits])
torch.save([n.state_dict() for n in nets], "weights.pt")
