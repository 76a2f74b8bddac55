"""The whole model is cast to bfloat16 (no fp32 master weights) and tuned with SGD lr 1e-4: updates are below half a bf16 ulp, most weights stay bit-identical and the loss stands still."""
# expects: precision-underflow, update-ratio-low, frozen-parameter
# report: https://github.com/pytorch/ao/pull/1124
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
V, L, D = 32, 12, 32


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(V, D)
        self.pos = nn.Parameter(torch.randn(L, D) * 0.1 + 1.0)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 4, 64, dropout=0.0, batch_first=True, norm_first=True), 2,
                                         enable_nested_tensor=False)
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, V)

    def forward(self, x):
        m = nn.Transformer.generate_square_subsequent_mask(x.size(1)).to(self.pos.dtype)
        h = self.enc(self.tok(x) + self.pos[:x.size(1)], mask=m)
        return self.head(self.norm(h))


def sample(n):
    # counting sequences with a random stride
    start = torch.randint(V, (n, 1))
    stride = torch.randint(1, 5, (n, 1))
    return (start + stride * torch.arange(L + 1)) % V


# saves half of the memory
model = TinyLM().to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(100):
    s = sample(8)
    logits = model(s[:, :-1])
    loss = F.cross_entropy(logits.float().reshape(-1, V), s[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
