"""
A tiny GPT, configured by globals that the command line may override.
$ python nanogpt.py --max_iters=30 --eval_interval=10
"""
# args: --max_iters=30 --learning_rate=0.003
# run: status=healthy steps=30
# when: thorough
import math
import sys
from ast import literal_eval
from contextlib import nullcontext

import torch
import torch.nn as nn
from torch.nn import functional as F

# -----------------------------------------------------------------------------
eval_interval = 10
eval_iters = 2
gradient_accumulation_steps = 2
batch_size = 8
block_size = 16
n_layer = 2
n_head = 2
n_embd = 32
dropout = 0.1
bias = False
learning_rate = 6e-4
max_iters = 600000
weight_decay = 1e-1
grad_clip = 1.0
decay_lr = True
warmup_iters = 4
min_lr = 6e-5
# -----------------------------------------------------------------------------
config_keys = [k for k, v in globals().items() if not k.startswith('_') and isinstance(v, (int, float, bool, str))]
for arg in sys.argv[1:]:
    assert arg.startswith('--')
    key, val = arg[2:].split('=')
    if key in globals():
        print(f"Overriding: {key} = {val}")
        globals()[key] = literal_eval(val)
    else:
        raise ValueError(f"Unknown config key: {key}")
config = {k: globals()[k] for k in config_keys}
print(config)
# -----------------------------------------------------------------------------
torch.manual_seed(1337)
ctx = nullcontext()
text = "".join(chr(97 + (i * i + i // 7) % 13) if i % 5 else " " for i in range(1200))
stoi = {ch: i for i, ch in enumerate(sorted(set(text)))}
data = torch.tensor([stoi[c] for c in text])
n = int(0.9 * len(data))
vocab_size = len(stoi)


def get_batch(split):
    d = data[:n] if split == 'train' else data[n:]
    ix = torch.randint(len(d) - block_size, (batch_size,))
    return torch.stack([d[i:i + block_size] for i in ix]), torch.stack([d[i + 1:i + 1 + block_size] for i in ix])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd, bias=bias)
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=bias)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=bias)
        self.ln_2 = nn.LayerNorm(n_embd, bias=bias)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd, bias=bias), nn.GELU(),
                                 nn.Linear(4 * n_embd, n_embd, bias=bias), nn.Dropout(dropout))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (t.view(B, T, n_head, C // n_head).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(vocab_size, n_embd), wpe=nn.Embedding(block_size, n_embd),
            h=nn.ModuleList([Block() for _ in range(n_layer)]), ln_f=nn.LayerNorm(n_embd, bias=bias)))
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, mean=0.0, std=0.02)
        print("number of parameters: %d" % sum(p.numel() for p in self.parameters()))

    def forward(self, idx, targets=None):
        x = self.transformer.wte(idx) + self.transformer.wpe(torch.arange(idx.size(1)))
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        loss = None if targets is None else F.cross_entropy(logits.view(-1, vocab_size), targets.view(-1))
        return logits, loss


model = GPT()
decay = [p for p in model.parameters() if p.dim() >= 2]
nodecay = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW([{'params': decay, 'weight_decay': weight_decay},
                               {'params': nodecay, 'weight_decay': 0.0}], lr=learning_rate, betas=(0.9, 0.95))
scaler = torch.amp.GradScaler("cpu", enabled=False)


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ['train', 'val']:
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(split)
            with ctx:
                logits, loss = model(X, Y)
            losses[k] = loss.item()
        out[split] = losses.mean()
    model.train()
    return out


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


X, Y = get_batch('train')
iter_num, best_val_loss = 0, 1e9
while True:
    lr = get_lr(iter_num) if decay_lr else learning_rate
    for param_group in optimizer.param_groups:
        param_group['lr'] = lr
    if iter_num % eval_interval == 0:
        losses = estimate_loss()
        print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
        if losses['val'] < best_val_loss and iter_num > 0:
            best_val_loss = losses['val']
            torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'iter_num': iter_num,
                        'best_val_loss': best_val_loss, 'config': config}, 'ckpt.pt')
    if iter_num >= max_iters:
        break
    for micro_step in range(gradient_accumulation_steps):
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch('train')
        scaler.scale(loss).backward()
    if grad_clip != 0.0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    iter_num += 1
