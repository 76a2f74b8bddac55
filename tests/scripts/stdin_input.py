"""Asks the user how to train, until there is no answer left."""

# stdin: Ada\n6\n0.1\ny\n4\n0.05
# run: status=healthy steps=10
# when: thorough

import torch

torch.manual_seed(2)
x = torch.linspace(-1, 1, 20).unsqueeze(1)
y = 3 * x + 0.5
net = torch.nn.Linear(1, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)

print("Hello,", input("Who are you? "))
while True:
    steps = int(input("How many steps? "))
    opt.param_groups[0]["lr"] = float(input("Learning rate? "))
    for _ in range(steps):
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
    print(f"loss is {loss:.4f}")
    try:
        if input("Again [y/n]? ") != "y":
            break
    except EOFError:
        print("\nNobody there.")
        break
torch.save(net.state_dict(), "weights.pt")
