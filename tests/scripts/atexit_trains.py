"""All the work is done at exit, in a handler: odd, but some frameworks with decorators end up there."""

# run: status=healthy steps=5
# when: thorough

import atexit

import torch


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        optimizer.zero_grad()
        loss = (model(torch.randn(8, 2)) - 1).square().mean()
        loss.backward()
        optimizer.step()
        print(step, f"{loss.item():.4f}")
    torch.save(model.state_dict(), "weights.pt")


atexit.register(main)
print("imported")
