"""A pool of forked processes prepares the data, then the parent trains; then the pool trains."""

# run: status=healthy steps=12
# when: thorough

import multiprocessing

import torch

SCALE = 0.5


def prepare(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(4, 3, generator=generator)
    return x.tolist(), (x.sum(1, keepdim=True) * SCALE).tolist()


def search(lr):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.ones(1, 3)).square().sum()
        loss.backward()
        optimizer.step()
    return round(loss.item(), 5)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        batches = pool.map(prepare, range(6))
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(2):
        for x, y in batches:
            optimizer.zero_grad()
            loss = (model(torch.tensor(x)) - torch.tensor(y)).square().mean()
            loss.backward()
            optimizer.step()
    print(f"parent {loss.item():.5f}")
    torch.save(model.state_dict(), "weights.pt")
