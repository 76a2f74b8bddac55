"""A hand-written MLP with torch.randn weights, as in the numpy tutorial, but 300 wide and deep."""
# expects: bad-initialization, saturated-units, loss-explosion

import torch
import torch.nn.functional as F


class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [40, 300, 300, 300, 5]
        self.weights = torch.nn.ParameterList(torch.randn(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x):
        for w in self.weights[:-1]:
            x = F.relu(x @ w)
        return x @ self.weights[-1]


torch.manual_seed(0)
model = Deep()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
centres = torch.randn(5, 40)
for step in range(120):
    y = torch.randint(0, 5, (32,))
    x = centres[y] + torch.randn(32, 40)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
