"""A function of one's own fails in its backward, and the loss is asked for twice."""

# exit: 1
# stderr: FloatingPointError: gradient 2 is too steep
# run: status=crashed steps=2
# when: thorough

import torch


class Steep(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        if Steep.calls == 2:
            raise FloatingPointError(f"gradient {Steep.calls} is too steep")
        Steep.calls += 1
        return gradient * 2


torch.manual_seed(5)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(16, 3)
for step in range(5):
    loss = Steep.apply(model(x)).pow(2).mean()
    try:
        loss.backward()
    except FloatingPointError:
        print("step", step, "failed")
        torch.save(model.state_dict(), "weights.pt")
        raise
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, f"{loss.item():.5f}")
