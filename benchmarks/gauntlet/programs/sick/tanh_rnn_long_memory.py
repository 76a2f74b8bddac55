"""Remember the first symbol for 80 steps with a small tanh RNN: the gradient of the past is gone."""
# expects: gradient-vanishing, loss-plateau

import torch
from torch import nn


class Recall(nn.Module):
    def __init__(self, symbols=4, hidden=24):
        super().__init__()
        self.embed = nn.Embedding(symbols, 8)
        self.cell = nn.RNNCell(8, hidden)
        nn.init.uniform_(self.cell.weight_hh, -0.05, 0.05)
        self.head = nn.Linear(hidden, symbols)

    def forward(self, tokens):
        h = torch.zeros(len(tokens), self.cell.hidden_size)
        for t in range(tokens.shape[1]):
            h = self.cell(self.embed(tokens[:, t]), h)
        return self.head(h)


torch.manual_seed(0)
model = Recall()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(120):
    tokens = torch.randint(0, 4, (16, 40))
    loss = nn.functional.cross_entropy(model(tokens), tokens[:, 0])
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
