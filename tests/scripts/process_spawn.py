"""torch.multiprocessing: one process trains shared weights, the parent goes on with them."""

# run: status=healthy steps=4

import torch
import torch.multiprocessing as mp


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x).tanh()


def train(rank, model, steps):
    torch.manual_seed(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.eye(2)).square().mean()
        loss.backward()
        optimizer.step()
    print(f"rank {rank}: {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Net()
    model.share_memory()
    mp.spawn(train, args=(model, 3), nprocs=1, join=True)
    train(1, model, 4)
    torch.save(model.state_dict(), "weights.pt")
