"""A small language model: transformer, AdamW, warm-up and cosine, clipped gradients, a held-out text."""

import math

import torch
from torch import nn

torch.manual_seed(0)

WORDS, LENGTH, WIDTH, STEPS, WARM_UP = 32, 32, 64, 300, 30

# A language in which each word is followed by one of four others.
followers = torch.randint(0, WORDS, (WORDS, 4))


def text(number):
    words = [torch.randint(0, WORDS, (number,))]
    for _ in range(LENGTH):
        words.append(followers[words[-1], torch.randint(0, 4, (number,))])
    return torch.stack(words, dim=1)


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, words):
        return self.head(self.layers(self.words(words) + self.positions, mask=self.mask, is_causal=True))


def loss_of(model, words):
    return nn.functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())


model = LanguageModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer,
    lambda step: min(
        (step + 1) / WARM_UP, 0.55 + 0.45 * math.cos(math.pi * max(0, step - WARM_UP) / (STEPS - WARM_UP))
    ),
)
held_out = text(64)

for step in range(STEPS):
    loss = loss_of(model, text(16))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    if step % 50 == 49:
        model.eval()
        with torch.no_grad():
            val_loss = loss_of(model, held_out)
        model.train()
        print(f"step {step:3}  loss {loss.item():.4f}  validation {val_loss.item():.4f}")
