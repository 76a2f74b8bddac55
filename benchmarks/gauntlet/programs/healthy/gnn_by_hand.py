"""A graph convolution by hand on a two-community graph; full batch, a mask for the training nodes."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class GCN(nn.Module):
    def __init__(self, n_in, hidden, classes):
        super().__init__()
        self.w1 = nn.Linear(n_in, hidden, bias=False)
        self.w2 = nn.Linear(hidden, classes, bias=False)

    def forward(self, x, adj):
        x = F.relu(adj @ self.w1(x))
        x = F.dropout(x, 0.5, training=self.training)
        return F.log_softmax(adj @ self.w2(x), dim=1)


torch.manual_seed(0)
n = 120
label = torch.arange(n) % 3
p = torch.where(label[:, None] == label[None], 0.15, 0.02)
edges = torch.bernoulli(torch.triu(p, 1))
adj = edges + edges.T + torch.eye(n)
d = adj.sum(1).rsqrt()
adj = d[:, None] * adj * d[None]
x = torch.eye(n)
train = torch.zeros(n, dtype=torch.bool)
train[torch.randperm(n)[:45]] = True
model = GCN(n, 16, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(120):
    model.train()
    optimizer.zero_grad()
    out = model(x, adj)
    loss = F.nll_loss(out[train], label[train])
    loss.backward()
    optimizer.step()
    if epoch % 30 == 0:
        model.eval()
        with torch.no_grad():
            accuracy = (model(x, adj).argmax(1) == label)[~train].float().mean()
        print(epoch, loss.item(), accuracy.item())
