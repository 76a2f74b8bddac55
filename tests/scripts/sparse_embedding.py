"""Sparse embedding gradients for SparseAdam, the rest with Adam."""
# run: status=healthy steps=40
# when: thorough
import torch
from torch import nn

torch.manual_seed(6)


class Recommender(nn.Module):
    def __init__(self, users=50, items=80, dim=16):
        super().__init__()
        self.users = nn.Embedding(users, dim, sparse=True)
        self.items = nn.EmbeddingBag(items, dim, sparse=True, mode="mean")
        self.mlp = nn.Sequential(nn.Linear(2 * dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, user, basket):
        return self.mlp(torch.cat([self.users(user), self.items(basket)], dim=1)).squeeze(1)


model = Recommender()
sparse_opt = torch.optim.SparseAdam([model.users.weight, model.items.weight], lr=2e-2)
dense_opt = torch.optim.Adam(model.mlp.parameters(), lr=1e-2)
taste = torch.randn(50)
price = torch.randn(80)

for step in range(40):
    user = torch.randint(50, (64,))
    basket = torch.randint(80, (64, 3))
    target = (taste[user] + price[basket].mean(1) > 0).float()
    loss = nn.functional.binary_cross_entropy_with_logits(model(user, basket), target)
    sparse_opt.zero_grad()
    dense_opt.zero_grad()
    loss.backward()
    sparse_opt.step()
    dense_opt.step()
    if step % 8 == 0:
        print(step, round(loss.item(), 6), model.users.weight.grad.is_sparse)

torch.save(model.state_dict(), "weights.pt")
