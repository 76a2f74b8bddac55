"""A shared encoder and three heads trained in turn, one optimizer over all, plus an adversarial input."""
# run: status=healthy steps=45
# when: thorough
import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(12, 32), nn.ReLU())
heads = nn.ModuleDict({"a": nn.Linear(32, 1), "b": nn.Linear(32, 3), "c": nn.Linear(32, 12)})
opt = torch.optim.Adam([*encoder.parameters(), *heads.parameters()], lr=5e-3)
w = torch.randn(12, 3)

for it in range(45):
    x = torch.randn(64, 12, requires_grad=True)
    task = "abc"[it % 3]
    if task == "a":
        loss = nn.functional.mse_loss(heads["a"](encoder(x)), x.detach().mean(1, keepdim=True))
    elif task == "b":
        target = (x.detach() @ w).argmax(1)
        # FGSM: a gradient for the input alone
        g, = torch.autograd.grad(nn.functional.cross_entropy(heads["b"](encoder(x)), target), x)
        loss = nn.functional.cross_entropy(heads["b"](encoder(x.detach() + 0.05 * g.sign())), target)
    else:
        loss = nn.functional.mse_loss(heads["c"](encoder(x)), x.detach())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it >= 42:
        print(task, loss.item())
torch.save({"encoder": encoder.state_dict(), "heads": heads.state_dict()}, "weights.pt")
