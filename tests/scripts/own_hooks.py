"""Somebody debugs by hand: hooks everywhere, and a patched Tensor.backward that counts calls."""
# run: status=healthy steps=12
# when: thorough
import collections

import torch
from torch import nn

torch.manual_seed(0)
calls = collections.Counter()
original_backward = torch.Tensor.backward


def counting_backward(self, *args, **kwargs):
    calls["backward"] += 1
    return original_backward(self, *args, **kwargs)


torch.Tensor.backward = counting_backward

model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
for name, module in model.named_modules():
    module.register_forward_hook(lambda m, i, o, name=name: calls.update([f"forward {name or 'root'}"]))
    module.register_full_backward_hook(lambda m, gi, go, name=name: calls.update([f"grad {name or 'root'}"]))
for name, p in model.named_parameters():
    p.register_hook(lambda g, name=name: calls.update([f"tensor {name}"]))
opt = torch.optim.SGD(model.parameters(), lr=0.05)
opt.register_step_pre_hook(lambda *a: calls.update(["pre"]))
opt.register_step_post_hook(lambda *a: calls.update(["post"]))
handle = nn.modules.module.register_module_forward_hook(lambda m, i, o: calls.update(["global " + type(m).__name__]))

x = torch.randn(32, 4)
y = x.sum(1, keepdim=True)
for _ in range(12):
    opt.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    opt.step()
handle.remove()
torch.Tensor.backward = original_backward
for key in sorted(calls):
    print(key, calls[key])
print(loss.item(), torch.Tensor.backward is original_backward)
torch.save(model.state_dict(), "weights.pt")
