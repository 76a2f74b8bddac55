"""Transfer learning: backbone pretrained, then requires_grad=False with its BatchNorm deliberately held in eval mode while the new head trains; only the head is in the optimizer."""
# expects:
# source: https://docs.pytorch.org/tutorials/beginner/transfer_learning_tutorial.html
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
protos = torch.randn(12, 3, 4, 4)


def make(n, classes):
    y = torch.randint(0, len(classes), (n,))
    up = F.interpolate(protos[classes], scale_factor=3)
    x = up[y] + 0.9 * torch.randn(n, 3, 12, 12)
    return x, y


backbone = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())


def run(head, params, data, test, steps, lr, freeze):
    opt = torch.optim.SGD(params, lr=lr, momentum=0.9)
    X, Y = data
    for step in range(steps):
        head.train()
        backbone.train(not freeze)
        idx = torch.randint(0, len(Y), (48,))
        loss = F.cross_entropy(head(backbone(X[idx])), Y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 49:
            head.eval(); backbone.eval()
            with torch.no_grad():
                acc = (head(backbone(test[0])).argmax(1) == test[1]).float().mean().item()
            print(f"{'finetune' if freeze else 'pretrain'} {step + 1}: loss {loss.item():.3f} test acc {acc:.3f}")


src = list(range(8))
tgt = [8, 9, 10, 11]
old_head = nn.Linear(128, 8)
run(old_head, list(backbone.parameters()) + list(old_head.parameters()), make(2000, src), make(500, src), 150, 0.03, freeze=False)
for p in backbone.parameters():
    p.requires_grad = False
new_head = nn.Linear(128, 4)
run(new_head, new_head.parameters(), make(600, tgt), make(400, tgt), 150, 0.03, freeze=True)
