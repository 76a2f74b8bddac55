"""A model in the style of transformers computes its loss in forward; all labels of a batch are -100."""
# op: aten.nll_loss|aten.nll_loss_forward|aten.nll_loss_nd|aten.cross_entropy_loss
# phase: forward
# module: ForCausalLM|-
# conditions: model dict-batch dataclass-output library

from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor, nn
import torch.nn.functional as F


@dataclass
class CausalLMOutput:
    logits: Tensor
    loss: Optional[Tensor] = None


class ForCausalLM(nn.Module):
    def __init__(self, vocabulary=32, dim=16):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, dim)
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(dim, 2, 32, 0.1, batch_first=True) for _ in range(2)])
        self.lm_head = nn.Linear(dim, vocabulary)

    def forward(self, input_ids, attention_mask=None, labels=None):
        h = self.embed_tokens(input_ids)
        causal = nn.Transformer.generate_square_subsequent_mask(h.shape[1])
        for layer in self.layers:
            h = layer(h, src_mask=causal)
        logits = self.lm_head(h)
        loss = None
        if labels is not None:
            shifted = logits[:, :-1].reshape(-1, logits.shape[-1])
            loss = F.cross_entropy(shifted, labels[:, 1:].reshape(-1), ignore_index=-100)  # <-- origin
        return CausalLMOutput(logits=logits, loss=loss)


def collate(step):
    ids = torch.randint(0, 32, (2, 8))
    labels = ids.clone()
    labels[:, :4] = -100
    if step == 4:
        labels[:] = -100  # the answers were cut off
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


torch.manual_seed(0)
model = ForCausalLM()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
for step in range(7):
    out = model(**collate(step))
    out.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
