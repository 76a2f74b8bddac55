"""Ends with an exit code of its own in the middle of training."""

# exit: 3
# run: status=healthy steps=5
# when: thorough

import sys

import torch


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(10):
        x = torch.randn(4, 2)
        loss = (model(x) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, f"{loss.item():.4f}")
        if step == 4:
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
