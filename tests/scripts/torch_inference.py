"""Loads weights and predicts: a forward pass, no optimizer."""

# run: status=healthy steps=0
# when: thorough

import io

import torch
from torch import nn

torch.manual_seed(0)
file = io.BytesIO()
torch.save(nn.Linear(4, 3).state_dict(), file)
file.seek(0)

model = nn.Linear(4, 3)
model.load_state_dict(torch.load(file, weights_only=True))
model.eval()
with torch.inference_mode():
    for batch in torch.randn(6, 2, 4):
        print(model(batch).argmax(1).tolist())
print(nn.functional.cross_entropy(model(torch.ones(1, 4)), torch.tensor([0])).item() > 0)
