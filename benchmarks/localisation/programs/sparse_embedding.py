"""Sparse gradients: the row of an unused token is zero, and its length is differentiated at 0."""
# op: aten.sqrt
# phase: backward
# module: unit
# conditions: sparse model

import torch
from torch import nn


class UnitLength(nn.Module):
    def forward(self, e):
        return e / (torch.sqrt(e.square().sum(-1, keepdim=True)) + 1e-8)  # <-- origin


class Word2Vec(nn.Module):
    def __init__(self, vocabulary=30, dim=6):
        super().__init__()
        self.centre = nn.Embedding(vocabulary, dim, sparse=True)
        self.context = nn.Embedding(vocabulary, dim, sparse=True)
        self.unit = UnitLength()
        nn.init.normal_(self.centre.weight)
        nn.init.normal_(self.context.weight)
        with torch.no_grad():
            self.centre.weight[29] = 0  # <unk>

    def forward(self, centre, context):
        return 4 * (self.unit(self.centre(centre)) * self.unit(self.context(context))).sum(-1)


torch.manual_seed(0)
model = Word2Vec()
optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=1e-2)
for step in range(6):
    centre, context = torch.randint(0, 29, (16,)), torch.randint(0, 29, (16,))
    if step == 4:
        centre[11] = 29
    loss = nn.functional.binary_cross_entropy_with_logits(model(centre, context), torch.randint(0, 2, (16,)).float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
