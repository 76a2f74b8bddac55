import __main__
import torch


def settings():
    return __main__.SETTINGS


def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=settings()["lr"])
    for _ in range(settings()["steps"]):
        optimizer.zero_grad()
        loss = model(torch.eye(3)).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()
