"""Prints in many scripts, to text and binary streams, and names its parameters in them."""

# args: --größe=3 名前 🙂
# run: status=healthy steps=5
# when: thorough

import sys

import torch

π = 3.14159


class Größe(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.höhe = torch.nn.Linear(1, 1)
        self.宽度 = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.höhe(x) + self.宽度


print(sys.argv[1:])
torch.manual_seed(0)
modèle = Größe()
optimizer = torch.optim.SGD(modèle.parameters(), lr=0.1)
for pas in range(5):
    optimizer.zero_grad()
    perte = (modèle(torch.ones(2, 1)) - π).square().mean()
    perte.backward()
    optimizer.step()
    print(f"étape {pas} ∇ {perte.item():.4f} 😀 \u202eabc\u202c \x1b[1mfett\x1b[0m")
print([name for name, _ in modèle.named_parameters()])
sys.stdout.flush()
sys.stdout.buffer.write(b"\xff\xfe raw bytes \x00\r\n")
sys.stdout.buffer.flush()
sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")
print("\udce9", end="\r\n")
torch.save(modèle.state_dict(), "weights.pt")
