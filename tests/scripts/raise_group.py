"""Trains several candidates and, when some failed, raises all their errors at once."""

# exit: 1
# stderr: ExceptionGroup: 2 of 4 candidates failed (2 sub-exceptions)
# exception: ExceptionGroup: 2 of 4 candidates failed (2 sub-exceptions)
# run: status=crashed steps=6+3+6+3
# when: thorough

import torch


def candidate(width, steps=6):
    torch.manual_seed(width)
    model = torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(12, 2)
    for step in range(steps):
        optimizer.zero_grad()
        loss = (model(x) - x[:, :1]).pow(2).mean()
        loss.backward()
        if width % 3 == 0 and step == 3:
            error = RuntimeError(f"width {width} was stopped")
            error.add_note(f"its loss was {loss.item():.4f}")
            raise error
        optimizer.step()
    print(width, f"{loss.item():.4f}")


failures = []
for width in (2, 3, 5, 6):
    try:
        candidate(width)
    except RuntimeError as error:
        failures.append(error)
if failures:
    raise ExceptionGroup(f"{len(failures)} of 4 candidates failed", failures)
