"""ReduceLROnPlateau on a validation loss."""
# run: status=healthy steps=120
# when: thorough
import torch
import torch.nn as nn

torch.manual_seed(3)

def noisy(n):
    x = torch.randn(n, 6)
    return x, x.sum(1, keepdim=True) + torch.randn(n, 1)

xtr, ytr = noisy(256)
xva, yva = noisy(128)
model = nn.Linear(6, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=2, threshold=1e-3)
mse = nn.MSELoss()

for epoch in range(30):
    model.train()
    for xb, yb in zip(xtr.chunk(4), ytr.chunk(4)):
        opt.zero_grad()
        l = mse(model(xb), yb)
        l.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        val = mse(model(xva), yva).item()
    sched.step(val)
    if epoch % 5 == 4:
        print("epoch {} val {:.6f} lr {:g}".format(epoch + 1, val, opt.param_groups[0]["lr"]))

torch.save(model.state_dict(), "weights.pt")
