"""Kipf-style GCN by hand, full-batch: the very same batch (the whole graph) each step, only 5% of nodes labelled, strong dropout and weight decay - all standard for this task."""
# expects:
# source: https://github.com/tkipf/pygcn
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(42)
N, C, D = 900, 5, 200
y = torch.randint(0, C, (N,))
P = torch.where(y[:, None] == y[None, :], 0.014, 0.0012)
A = (torch.rand(N, N) < P).float().triu(1)
A = A + A.T + torch.eye(N)
d = A.sum(1).rsqrt()
A_hat = d[:, None] * A * d[None, :]
topic = torch.rand(C, D) < 0.12
X = (torch.rand(N, D) < torch.where(topic[y], 0.16, 0.03)).float()
X = X / X.sum(1, keepdim=True).clamp(min=1)
perm = torch.randperm(N)
idx_train, idx_val, idx_test = perm[:60], perm[60:260], perm[260:]


class GraphConvolution(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(i, o))
        self.bias = nn.Parameter(torch.zeros(o))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, adj):
        return adj @ (x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.gc1, self.gc2 = GraphConvolution(D, 32), GraphConvolution(32, C)

    def forward(self, x, adj):
        x = F.dropout(x, 0.5, training=self.training)
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, 0.5, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(140):
    model.train()
    optimizer.zero_grad()
    out = model(X, A_hat)
    loss = F.nll_loss(out[idx_train], y[idx_train])
    loss.backward()
    optimizer.step()
    if epoch % 35 == 34:
        model.eval()
        with torch.no_grad():
            out = model(X, A_hat)
        va, te = ((out[i].argmax(1) == y[i]).float().mean().item() for i in (idx_val, idx_test))
        print(f"Epoch: {epoch + 1:04d} loss_train: {loss.item():.4f} acc_val: {va:.4f} acc_test: {te:.4f}")
