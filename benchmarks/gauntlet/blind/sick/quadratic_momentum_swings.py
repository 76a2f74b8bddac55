"""Full-batch regression with SGD momentum 0.999 and too large a step: the loss swings up and down for the whole run instead of settling."""
# expects: loss-oscillation, lr-too-high
# report: folklore
import torch

torch.manual_seed(0)
n, d = 512, 20
scales = torch.logspace(0, -1.3, d)
X = torch.randn(n, d) * scales
w_true = torch.randn(d, 1)
y = X @ w_true + 0.1 * torch.randn(n, 1)

w = torch.zeros(d, 1, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
# high momentum to get through the flat directions faster
optimizer = torch.optim.SGD([w, b], lr=1.6, momentum=0.999)
history = []
for it in range(400):
    pred = X @ w + b
    loss = ((pred - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
    if it % 10 == 0:
        print(f"iter {it}: loss {loss.item():.4f}")
print("best", min(history), "last", history[-1])
