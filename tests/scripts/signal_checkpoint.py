"""SIGTERM saves a checkpoint and ends the script in good order, as clusters want it."""

# run: status=healthy steps=6
# when: thorough

import os
import signal
import sys

import torch


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.done = 0
        print("before:", signal.signal(signal.SIGTERM, self.terminated) == signal.SIG_DFL)

    def terminated(self, number, frame):
        print("received", signal.Signals(number).name, "in", frame.f_code.co_name, "after", self.done, "steps")
        torch.save(self.model.state_dict(), "weights.pt")
        sys.exit(0)

    def fit(self, steps):
        for _ in range(steps):
            x = torch.randn(8, 4)
            self.optimizer.zero_grad()
            (self.model(x) - x[:, :1]).pow(2).mean().backward()
            self.optimizer.step()
            self.done += 1
            if self.done == 6:
                os.kill(os.getpid(), signal.SIGTERM)


Trainer().fit(20)
print("never reached")
