import sys

import torch

torch.manual_seed(seed)  # noqa: F821
print("other is", __name__, sys.argv[0].endswith("other.py"), sys.modules["__main__"].__dict__ is globals())
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.eye(2)).square().sum()
    loss.backward()
    optimizer.step()
result = round(loss.item(), 5)
