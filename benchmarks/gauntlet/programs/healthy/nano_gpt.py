"""nanoGPT in small: tied weights, causal attention, accumulation, warm-up and cosine, clipping, decay groups."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

text = "to be or not to be that is the question whether tis nobler in the mind to suffer " * 40
chars = sorted(set(text))
data = torch.tensor([chars.index(c) for c in text])


class Block(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head = n_head
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (z.view(B, T, self.n_head, -1).transpose(1, 2) for z in self.c_attn(self.ln_1(x)).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab, n_embd=32, block=24):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, n_embd), nn.Embedding(block, n_embd)
        self.h = nn.Sequential(Block(n_embd, 4), Block(n_embd, 4))
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab, bias=False)
        self.wte.weight = self.lm_head.weight
        self.apply(self._init)

    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)
            if isinstance(m, nn.Linear) and m.bias is not None:
                nn.init.zeros_(m.bias)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        logits = self.lm_head(self.ln_f(self.h(x)))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


torch.manual_seed(0)
model = GPT(len(chars))
decay = [p for p in model.parameters() if p.dim() >= 2]
no_decay = [p for p in model.parameters() if p.dim() < 2]
groups = [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))
micro, iters, warm = 2, 120, 10


def get_batch():
    ix = torch.randint(len(data) - 25, (8,))
    return torch.stack([data[i : i + 24] for i in ix]), torch.stack([data[i + 1 : i + 25] for i in ix])


@torch.no_grad()
def estimate_loss():
    model.eval()
    value = sum(model(*get_batch())[1].item() for _ in range(5)) / 5
    model.train()
    return value


for it in range(iters):
    lr = 3e-3 * (it + 1) / warm if it < warm else 3e-4 + 1.35e-3 * (1 + math.cos(math.pi * (it - warm) / (iters - warm)))
    for g in optimizer.param_groups:
        g["lr"] = lr
    if it % 40 == 0:
        print(it, estimate_loss())
    for _ in range(micro):
        logits, loss = model(*get_batch())
        (loss / micro).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
