"""Hangs in native code, where no handler written in Python can run, and is told to end."""

# exit: -15
# seconds: 30
# run: none
# when: thorough

import ctypes
import os
import signal
import threading

import torch

torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    loss = model(torch.eye(2)).square().mean()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}", flush=True)
torch.save(model.state_dict(), "weights.pt")

library = ctypes.CDLL(None)
lock = ctypes.create_string_buffer(64)  # a pthread_mutex_t
library.pthread_mutex_lock(lock)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
library.pthread_mutex_lock(lock)  # for ever, like a collective whose peer is gone
