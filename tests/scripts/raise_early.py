"""Fails before it has a model: the configuration lacks a key."""

# exit: 1
# stderr: KeyError: 'learning_rate'
# run: status=crashed steps=0
# when: thorough

import json

import torch

CONFIG = json.loads('{"hidden": 8, "epochs": 3}')


def build(config):
    model = torch.nn.Linear(config["hidden"], 1)
    return model, torch.optim.SGD(model.parameters(), lr=config["learning_rate"])


print("configuration:", CONFIG)
model, optimizer = build(CONFIG)
print("never reached")
