"""Saved by an editor that puts a byte order mark first; “quotes” and all."""

# run: status=healthy steps=3
# when: thorough

import torch

print(repr(__doc__[:5]), "“quoted”")
w = torch.ones(2, requires_grad=True)
o = torch.optim.SGD([w], lr=0.1)
for i in range(3):
    o.zero_grad()
    w.square().sum().backward()
    o.step()
print(w.tolist())
torch.save(w, "weights.pt")
