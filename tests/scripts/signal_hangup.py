"""The terminal is closed while a thread trains and the main one waits: SIGHUP."""

# exit: -1
# exception: SIGHUP
# run: status=healthy steps=8
# when: thorough

import os
import signal
import threading

import torch


def train():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        x = torch.randn(8, 4)
        optimizer.zero_grad()
        loss = (model(x) - x[:, :1]).pow(2).mean()
        loss.backward()
        optimizer.step()
        print(f"step {step}: {loss.item():.4f}", flush=True)
    torch.save(model.state_dict(), "weights.pt")
    os.kill(os.getpid(), signal.SIGHUP)
    threading.Event().wait(60)


threading.Thread(target=train, daemon=True).start()
threading.Event().wait(60)
