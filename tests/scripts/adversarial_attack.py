"""PGD on a trained classifier: backward for the input, while the weights gather gradients that nobody uses."""
# run: status=healthy steps=any runs=any
# when: thorough
# findings: none
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
x = torch.randn(200, 10)
y = (x[:, 0] > 0).long()
net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(40):
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()

net.eval()
print("clean", (net(x).argmax(1) == y).float().mean().item())
adv = x.clone()
for k in range(10):
    adv.requires_grad_(True)
    loss = F.cross_entropy(net(adv), y)
    loss.backward()
    adv = (adv + 0.05 * adv.grad.sign()).detach().clamp(x - 0.3, x + 0.3)
    print("pgd", k, loss.item())
print("adversarial", (net(adv).argmax(1) == y).float().mean().item())
print("unused gradient", sum(p.grad.abs().sum() for p in net.parameters()).item())
torch.save(adv, "adversarial.pt")
