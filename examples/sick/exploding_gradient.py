"""A gradient that explodes: a recurrent network meets longer sequences, and nothing clips it.

The state is multiplied by the same matrix once for each entry. Over ten entries it matters little that the matrix
stretches the state somewhat; over sixty the gradient is stretched to the power of sixty.
"""

import torch
from torch import nn

torch.manual_seed(0)


class Adder(nn.Module):
    """Reads numbers, two of them marked, and says the sum of the marked ones."""

    def __init__(self, width=16):
        super().__init__()
        self.read = nn.Linear(2, width)
        self.carry = nn.Linear(width, width)
        self.answer = nn.Linear(width, 1)
        nn.init.eye_(self.carry.weight).data.mul_(1.1)  # keeps the state, and makes a little more of it
        nn.init.zeros_(self.carry.bias)
        nn.init.normal_(self.answer.weight, std=0.02)

    def forward(self, sequence):
        state = torch.zeros(sequence.shape[0], self.carry.in_features)
        for entry in sequence.unbind(dim=1):
            state = torch.relu(self.read(entry) + self.carry(state))
        return self.answer(state).squeeze(1)


model = Adder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(200):
    length = 10 if step < 150 else 60  # first the short ones, then the real thing
    numbers = torch.rand(32, length)
    marked = torch.zeros(32, length).scatter_(1, torch.rand(32, length).topk(2).indices, 1.0)
    target = (numbers * marked).sum(dim=1)

    prediction = model(torch.stack([numbers, marked], dim=2))
    loss = nn.functional.mse_loss(prediction, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0 or step == 199:
        print(f"step {step:3}  loss {loss.item():.4g}")
