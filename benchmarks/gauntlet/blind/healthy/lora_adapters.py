"""LoRA on a frozen pretrained MLP: B starts at zero, so A has exactly zero gradient in step one; base weights are frozen on purpose and two linear maps follow each other without activation."""
# expects:
# source: https://arxiv.org/abs/2106.09685
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 5)).requires_grad_(False)
teacher[0].weight.mul_(1.5)
shift = torch.randn(16, 2) @ torch.randn(2, 16) * 0.35


def data(n, shifted):
    x = torch.randn(n, 16)
    return x, teacher(x + x @ shift if shifted else x).argmax(1)


class LoRALinear(nn.Module):
    def __init__(self, base, r=4, alpha=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.empty(r, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.scaling = alpha / r

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.lora_A), self.lora_B) * self.scaling


def fit(model, params, steps, lr, shifted):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.0)
    for i in range(steps):
        x, y = data(128, shifted)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 100 == 99:
            with torch.no_grad():
                x, y = data(2000, shifted)
                print(f"{'lora' if shifted else 'base'} step {i + 1} loss {loss.item():.3f} acc {(model(x).argmax(1) == y).float().mean():.3f}")


model = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 5))
fit(model, model.parameters(), 400, 3e-3, False)
with torch.no_grad():
    x, y = data(2000, True)
    print(f"zero-shot on the new task {(model(x).argmax(1) == y).float().mean():.3f}")
for i in (0, 2, 4):
    model[i] = LoRALinear(model[i])
trainable = [p for p in model.parameters() if p.requires_grad]
print(f"trainable {sum(p.numel() for p in trainable)} of {sum(p.numel() for p in model.parameters())}")
fit(model, trainable, 300, 6e-3, True)
