#!/usr/bin/python
# -*- coding: latin-1 -*-
"""Written in Latin-1, as its cookie says: größer, naïve, £."""

# exit: 1
# stderr: ValueError: größer als erwartet: £5
# run: status=crashed steps=3
# when: thorough

import torch

print(len("größer"), [ord(c) for c in "ñ£"])
w = torch.ones(2, requires_grad=True)
o = torch.optim.SGD([w], lr=0.1)
for i in range(3):
    o.zero_grad()
    w.square().sum().backward()
    o.step()
torch.save(w, "weights.pt")
raise ValueError("größer als erwartet: £5")  # so groß
