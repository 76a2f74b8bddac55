"""Accumulation over 4, but zero_grad at the top of every micro-batch: three quarters are thrown away."""
# expects: accumulation-mismatch, lost-gradient
# report: https://github.com/huggingface/accelerate/issues/641

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def train(model, loader, optimizer, accumulation=4, epochs=4):
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        for i, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(x), y) / accumulation
            loss.backward()
            if (i + 1) % accumulation == 0:
                optimizer.step()
        print(epoch, loss.item() * accumulation)


torch.manual_seed(0)
features = torch.randn(960, 16)
labels = features[:, :5].argmax(1)
net = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 5))
train(net, DataLoader(TensorDataset(features, labels), 12, shuffle=True), torch.optim.AdamW(net.parameters(), 2e-3))
