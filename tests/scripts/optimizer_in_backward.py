"""The optimizer step is fused into backward: one optimizer for each parameter, the gradient is freed at once."""
# run: status=healthy steps=30
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer_dict = {p: torch.optim.Adam([p], foreach=False, lr=2e-3) for p in model.parameters()}


def optimizer_hook(parameter) -> None:
    optimizer_dict[parameter].step()
    optimizer_dict[parameter].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(optimizer_hook)

x = torch.randn(256, 8)
y = x.abs().sum(1, keepdim=True)
for step in range(30):
    i = torch.randint(256, (64,))
    loss = nn.functional.mse_loss(model(x[i]), y[i])
    loss.backward()
    if step % 6 == 5:
        print(step + 1, loss.item(), all(p.grad is None for p in model.parameters()))
torch.save(model.state_dict(), "weights.pt")
