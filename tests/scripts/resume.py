"""Saves a checkpoint half way, builds everything anew from it and goes on."""
# run: status=healthy steps=24+24
# when: thorough
import torch
from torch import nn

CKPT = "last.ckpt"


def build():
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 48)
    return model, optimizer, scheduler


def train(model, optimizer, scheduler, start, stop):
    for step in range(start, stop):
        i = torch.randint(128, (32,))
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 8 == 7:
            print(step + 1, loss.item(), scheduler.get_last_lr())
    torch.save(dict(model=model.state_dict(), optimizer=optimizer.state_dict(),
                    scheduler=scheduler.state_dict(), step=stop, rng=torch.get_rng_state()), CKPT)


torch.manual_seed(0)
x = torch.randn(128, 6)
y = x[:, :3].argmax(1)
train(*build(), 0, 24)

model, optimizer, scheduler = build()
ckpt = torch.load(CKPT)
model.load_state_dict(ckpt["model"])
optimizer.load_state_dict(ckpt["optimizer"])
scheduler.load_state_dict(ckpt["scheduler"])
torch.set_rng_state(ckpt["rng"])
print("resumed at", ckpt["step"])
train(model, optimizer, scheduler, ckpt["step"], 48)
