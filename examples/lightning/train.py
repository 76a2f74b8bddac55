"""A small classifier, trained by Lightning: an ordinary script.

seismograd run examples/lightning/train.py           healthy
seismograd run examples/lightning/train.py --sick    takes the logarithm of negative numbers at step 40
"""

import sys

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

SICK = "--sick" in sys.argv


class Classifier(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        inputs, targets = batch
        scores = self.net(inputs)
        if SICK and self.global_step >= 40:
            scores = torch.log(scores)  # of negative numbers, too
        loss = F.cross_entropy(scores, targets)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        inputs, targets = batch
        self.log("val_loss", F.cross_entropy(self.net(inputs), targets))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def samples(count: int, rule: torch.Tensor) -> TensorDataset:
    inputs = torch.randn(count, 16)
    return TensorDataset(inputs, (inputs @ rule).argmax(1))


L.seed_everything(0)
rule = torch.randn(16, 4)
trainer = L.Trainer(
    max_epochs=4,
    accumulate_grad_batches=2,
    gradient_clip_val=1.0,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(
    Classifier(),
    DataLoader(samples(960, rule), batch_size=16, shuffle=True),
    DataLoader(samples(240, rule), batch_size=16),
)
