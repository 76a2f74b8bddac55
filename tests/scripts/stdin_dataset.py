#!/usr/bin/env python3
"""Reads its data set from a pipe: cat data.csv | python stdin_dataset.py -"""

# args: -
# stdin: a,b,target\n0.5,1,2.5\n1,1,3\n1,2,5\n-1,0.5,0\n2,-1,0\n0,0,0\n0.25,0.75,1.75\n-0.5,-0.5,-1.5
# run: status=healthy steps=24
# when: thorough

import csv
import sys

import torch
from torch.nn.functional import mse_loss

source = sys.stdin if sys.argv[1] == "-" else open(sys.argv[1])
rows = [[float(row[name]) for name in ("a", "b", "target")] for row in csv.DictReader(source)]
print(len(rows), "rows, the last is", rows[-1])
print(repr(sys.stdin.read()), "is left")

torch.manual_seed(1)
data = torch.tensor(rows)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(12):
    for batch in data.split(4):
        optimizer.zero_grad()
        loss = mse_loss(model(batch[:, :2]), batch[:, 2:])
        loss.backward()
        optimizer.step()
print("weights", [round(weight, 3) for weight in model.weight[0].tolist()])
torch.save(model.state_dict(), "weights.pt")
