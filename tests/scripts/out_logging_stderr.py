"""Logs by dictConfig to stderr and a file, with all other loggers disabled."""

# stderr: INFO train epoch 0: 0.
# run: status=healthy steps=12
# when: thorough

import logging
import logging.config

import torch

logging.config.dictConfig(
    {
        "version": 1,
        "disable_existing_loggers": True,
        "formatters": {"short": {"format": "%(levelname)s %(name)s %(message)s"}},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": "short", "level": "INFO"},
            "file": {"class": "logging.FileHandler", "filename": "train.log", "formatter": "short"},
        },
        "root": {"handlers": ["stderr", "file"], "level": "DEBUG"},
    }
)
logger = logging.getLogger("train")

torch.manual_seed(0)
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
criterion = torch.nn.CrossEntropyLoss()
data = torch.randn(32, 4)
labels = (data[:, 0] > 0).long()
for epoch in range(3):
    for i in range(4):
        optimizer.zero_grad()
        loss = criterion(net(data[i * 8 : i * 8 + 8]), labels[i * 8 : i * 8 + 8])
        loss.backward()
        optimizer.step()
        logger.debug("batch %d", i)
    logger.info("epoch %d: %.4f", epoch, loss.item())
try:
    raise ValueError("just to see it")
except ValueError:
    logger.exception("caught")
torch.save(net.state_dict(), "weights.pt")
