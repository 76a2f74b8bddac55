"""Ctrl-C in the middle of training, which nobody catches: Python ends by the signal."""

# exit: -2
# stderr: KeyboardInterrupt
# run: status=healthy steps=4

import signal

import torch


def train(model, optimizer):
    for step in range(20):
        x = torch.randn(8, 3)
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        if step == 4:
            signal.raise_signal(signal.SIGINT)
        optimizer.step()
        print("step", step, f"{loss.item():.5f}")


torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
try:
    train(model, torch.optim.Adam(model.parameters(), lr=0.1))
finally:
    torch.save(model.state_dict(), "weights.pt")
    print("interrupted")
