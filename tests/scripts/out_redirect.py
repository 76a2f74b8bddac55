"""Captures what is printed while it trains, on both streams; the training ends in NaN."""

# run: status=critical steps=14
# when: thorough
# findings: nonfinite-gradient

import contextlib
import io
import sys
import warnings

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

out, err = io.StringIO(), io.StringIO()
with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for step in range(14):
        x = torch.rand(8, 2)
        if step == 10:
            x[:] = 1.0
        distance = torch.sqrt((x[:, :1] - x[:, 1:]).square() * model(x).square().clamp(max=1e6))
        loss = (model(x) + distance).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: {loss.item():.4f}")
    print("done", file=sys.stderr)

print(out.getvalue())
print(repr(err.getvalue()))
print([str(warning.message) for warning in caught])
torch.save(model.state_dict(), "weights.pt")
