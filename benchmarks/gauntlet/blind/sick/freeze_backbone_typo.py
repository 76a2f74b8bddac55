"""The backbone should be frozen for the probe, but the attribute is misspelt (require_grad), so the whole pretrained backbone keeps changing."""
# expects: ineffective-freeze
# report: folklore
import copy
import tempfile, os
import torch
import torch.nn as nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
w = torch.randn(20, 10)


def source(n):
    x = torch.randn(n, 20)
    return x, (x @ w).argmax(1)


def target(n):
    x = torch.randn(n, 20)
    return x, ((x @ w)[:, :2].sum(1) > 0).long()


def run(model, params, sampler, steps, lr):
    opt = torch.optim.Adam(params, lr=lr)
    for s in range(steps):
        x, y = sampler(64)
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if s % 50 == 0:
            print(f"  step {s} loss {loss.item():.4f}")


print("pretraining")
pre = nn.Sequential(backbone, nn.Linear(32, 10))
run(pre, pre.parameters(), source, 200, 2e-3)
path = os.path.join(tempfile.mkdtemp(), "backbone.pt")
torch.save(backbone.state_dict(), path)

print("linear probe on the frozen backbone")
backbone.load_state_dict(torch.load(path))
before = copy.deepcopy(backbone.state_dict())
for param in backbone.parameters():
    param.require_grad = False
probe = nn.Sequential(backbone, nn.Linear(32, 2))
run(probe, probe.parameters(), target, 200, 2e-3)
print("backbone moved by", sum((a - b).abs().sum().item() for a, b in zip(before.values(), backbone.state_dict().values())))
