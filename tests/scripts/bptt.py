"""Truncated back-propagation through time, with gradients clipped and a custom autograd.Function."""
# run: status=healthy steps=48
# when: thorough
import torch
from torch import nn


class ScaleGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 24, batch_first=True)
        self.fc = nn.Linear(24, 1)

    def forward(self, x, state):
        h, state = self.lstm(x, state)
        return self.fc(ScaleGrad.apply(h, 0.5)), state


torch.manual_seed(2)
t = torch.arange(0, 8 * 16 + 1) * 0.25
series = torch.stack([torch.sin(t + i) for i in range(8)]).unsqueeze(-1)
model = Forecaster()
opt = torch.optim.RMSprop(model.parameters(), lr=5e-3)
for epoch in range(6):
    state, total = None, 0.0
    for k in range(0, 128, 16):
        if state is not None:
            state = tuple(s.detach() for s in state)
        out, state = model(series[:, k:k + 16], state)
        loss = nn.functional.mse_loss(out, series[:, k + 1:k + 17])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        opt.step()
        total += loss.item()
    print(epoch, total / 8)
torch.save(model.state_dict(), "weights.pt")
