"""Memory that grows with every step: a list of losses that keep their graphs.

The history is for a plot at the end, and a loss looks like a number. It is a tensor, and it remembers how it was
made: the list holds every node of every step's graph. A small model bears that for long, a large one for an hour.
"""

import torch
from torch import nn

torch.manual_seed(0)

inputs = torch.randn(4096, 32)
labels = (inputs @ torch.randn(32, 5)).argmax(dim=1)


def main():
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 5))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    history = []

    for epoch in range(4):
        for batch in torch.randperm(4096).split(64):
            loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.append(loss)  # loss.item() is a number, loss is a graph
        print(f"epoch {epoch}  loss {sum(history[-64:]) / 64:.4f}")


main()
