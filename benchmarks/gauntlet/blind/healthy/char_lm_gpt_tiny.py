"""nanoGPT-style char LM with tied embeddings, warmup+cosine, random block sampling; loss stays far above zero because text has entropy."""
# expects:
# source: https://github.com/karpathy/nanoGPT
import math
import random
import torch
import torch.nn as nn
from torch.nn import functional as F

torch.manual_seed(1337)
random.seed(1337)
names = ["alice", "bob", "carol", "dave", "erin"]
verbs = ["sees", "likes", "calls", "helps", "finds"]
objs = ["the cat", "a dog", "the red house", "an old book", "the sea"]
text = "".join(f"{random.choice(names)} {random.choice(verbs)} {random.choice(objs)}.\n" for _ in range(4000))
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
itos = {i: c for c, i in stoi.items()}
data = torch.tensor([stoi[c] for c in text])
n = int(0.9 * len(data))
train_data, val_data = data[:n], data[n:]

block_size, batch_size, n_embd, n_head, n_layer, dropout = 48, 24, 64, 4, 2, 0.1
max_iters, warmup, lr_max, lr_min = 220, 30, 3e-3, 3e-4


def get_batch(split):
    d = train_data if split == "train" else val_data
    ix = torch.randint(len(d) - block_size - 1, (batch_size,))
    return torch.stack([d[i:i + block_size] for i in ix]), torch.stack([d[i + 1:i + 1 + block_size] for i in ix])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.proj = nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd), nn.Dropout(dropout))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.ln1(x)).split(C, dim=2)
        q, k, v = (t.view(B, T, n_head, C // n_head).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout if self.training else 0.0)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.wte = nn.Embedding(vocab, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.blocks = nn.ModuleList(Block() for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab, bias=False)
        self.apply(self._init)
        self.lm_head.weight = self.wte.weight

    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)
        if isinstance(m, nn.Linear) and m.bias is not None:
            nn.init.zeros_(m.bias)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        for b in self.blocks:
            x = b(x)
        logits = self.lm_head(self.ln_f(x))
        loss = None if targets is None else F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        return logits, loss


def get_lr(it):
    if it < warmup:
        return lr_max * (it + 1) / warmup
    r = (it - warmup) / (max_iters - warmup)
    return lr_min + 0.5 * (1 + math.cos(math.pi * r)) * (lr_max - lr_min)


@torch.no_grad()
def estimate_loss():
    model.eval()
    out = {s: sum(model(*get_batch(s))[1].item() for _ in range(5)) / 5 for s in ("train", "val")}
    model.train()
    return out


model = GPT(len(chars))
decay = [p for p in model.parameters() if p.dim() >= 2]
nodecay = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": nodecay, "weight_decay": 0.0}], lr=lr_max, betas=(0.9, 0.99))
for it in range(max_iters):
    for g in optimizer.param_groups:
        g["lr"] = get_lr(it)
    if it % 50 == 0 or it == max_iters - 1:
        l = estimate_loss()
        print(f"step {it}: train loss {l['train']:.4f}, val loss {l['val']:.4f}")
    _, loss = model(*get_batch("train"))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()

model.eval()
ctx = torch.tensor([[stoi["\n"]]])
with torch.no_grad():
    for _ in range(80):
        p = F.softmax(model(ctx[:, -block_size:])[0][:, -1], -1)
        ctx = torch.cat([ctx, torch.multinomial(p, 1)], 1)
print("".join(itos[i] for i in ctx[0].tolist()))
