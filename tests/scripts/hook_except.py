"""An excepthook of its own, which prints to stdout what it is given."""

# exit: 1
# exception: ArithmeticError: diverged at step 4
# run: status=crashed steps=4
# when: thorough

import sys
import traceback

import torch


def report(kind, error, tb):
    print("hook:", kind.__name__, error)
    for frame in traceback.extract_tb(tb):
        print("   ", frame.name, "|", frame.line)
    print("cause:", repr(error.__cause__), "context:", repr(error.__context__))
    print(error.__traceback__ is tb, tb.tb_frame.f_code.co_name, tb.tb_frame.f_globals is globals())
    try:
        torch.save(model.state_dict(), "weights.pt")
    except OSError:
        print("not saved")


sys.excepthook = report


def diverged(loss, step):
    if step == 4:
        raise ArithmeticError(f"diverged at step {step}")


torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 2)).square().mean()
    diverged(loss, step)
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.4f}")
