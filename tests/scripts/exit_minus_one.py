"""exit(-1), by the name that the interpreter has for interactive use: a shell sees 255."""

# exit: 255
# run: status=healthy steps=2
# when: thorough

import torch

torch.manual_seed(0)
a = torch.nn.Linear(1, 1)
o = torch.optim.SGD(a.parameters(), 0.1)
for i in range(2):
    a(torch.ones(1, 1)).pow(2).sum().backward()
    o.step()
    o.zero_grad()
print("%.4f" % a.weight.item())
torch.save(a.state_dict(), "weights.pt")
exit(-1)
