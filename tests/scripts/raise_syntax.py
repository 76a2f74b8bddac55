"""Does not even compile."""

# exit: 1
# stderr: SyntaxError: '(' was never closed
# run: status=crashed steps=0

import torch

print("never reached")
loss = torch.tensor([1.0, 2.0]
print(loss)
