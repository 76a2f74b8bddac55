"""Counts its own calls and lines with sys.setprofile and sys.settrace while it trains."""

# run: status=healthy steps=6
# when: thorough

import collections
import sys
import threading

import torch

calls, lines = collections.Counter(), collections.Counter()


def profiler(frame, event, argument):
    if event == "call" and frame.f_code.co_filename == __file__:
        calls[frame.f_code.co_name] += 1


def tracer(frame, event, argument):
    if frame.f_code.co_filename != __file__:
        return None
    if event == "line":
        lines[frame.f_code.co_name] += 1
    return tracer


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        y = x * self.w
        return y.sum(1)


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(torch.eye(2)).square().sum()
        loss.backward()
        optimizer.step()
    return loss.item()


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
sys.setprofile(profiler)
train(3)
print(sys.getprofile() is profiler)
sys.setprofile(None)
threading.settrace(tracer)
sys.settrace(tracer)
train(3)
print(sys.gettrace() is tracer)
sys.settrace(None)
threading.settrace(None)
print(sorted(calls.items()))
print(sorted(lines.items()))
torch.save(net.state_dict(), "weights.pt")
