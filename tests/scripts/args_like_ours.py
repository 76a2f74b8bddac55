"""Options that other tools have too: all of them are the script's own."""

# args: --level 3 --report out.txt --budget 7 --fail-on never --ignore a b --quiet -m foo --epochs=4 -- --help run -m
# run: status=healthy steps=20
# when: thorough

import argparse
import sys

import torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--level", type=int, default=1)
parser.add_argument("--report", default="report.txt")
parser.add_argument("--budget", type=float)
parser.add_argument("--fail-on")
parser.add_argument("--stop-on", default="nothing")
parser.add_argument("--ignore", nargs="*")
parser.add_argument("--quiet", action="store_true")
parser.add_argument("-m", "--model", choices=["foo", "bar"])
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("rest", nargs="*")
args = parser.parse_args()

print(sys.argv[1:])
print(sorted(vars(args).items()))

torch.manual_seed(args.level)
x = torch.randn(40, 5)
y = x @ torch.ones(5, 1) + 0.1 * torch.randn(40, 1)
model = torch.nn.Linear(5, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
with open(args.report, "w") as report:
    for epoch in range(args.epochs):
        for start in range(0, 40, 8):
            loss = torch.nn.functional.mse_loss(model(x[start : start + 8]), y[start : start + 8])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.5f}", file=report)
torch.save(model.state_dict(), "weights.pt")
print(open(args.report).read(), end="")
