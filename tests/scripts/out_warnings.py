"""Warnings are errors here, and one of its own is caught; the one at the end is shown as usual."""

# stderr: UserWarning: the end is near
# run: status=healthy steps=18
# when: thorough

import warnings

warnings.simplefilter("error")

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.ELU(), torch.nn.Linear(6, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=6)
for step in range(18):
    x = torch.randn(16, 3)
    optimizer.zero_grad()
    loss = (model(x) - x.amax(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    scheduler.step()
print(f"{loss.item():.5f}", scheduler.get_last_lr())
try:
    torch.nn.functional.mse_loss(model(x), x[:, 0])
except UserWarning as warning:
    print("caught:", str(warning).split(".")[0])
torch.save(model.state_dict(), "weights.pt")

warnings.simplefilter("default")
warnings.warn("the end is near")
warnings.warn("shown once", DeprecationWarning)
