"""Logs everything that anybody has to say to stdout, down to DEBUG; the training ends in NaN."""

# run: status=critical steps=12
# when: thorough
# findings: nonfinite-loss

import logging
import sys

import torch

logging.basicConfig(stream=sys.stdout, level=logging.DEBUG, format="%(name)s %(levelname)s %(message)s")
logging.captureWarnings(True)
log = logging.getLogger(__name__)

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
log.info("model: %s", model)
for step in range(12):
    x = torch.randn(16, 3)
    optimizer.zero_grad()
    loss = (model(x) - x[:, :1]).square().mean()
    if step == 6:
        loss = torch.log(loss - loss.detach() - 1)
    loss.backward()
    optimizer.step()
    log.debug("step %d loss %.4f", step, loss.item())
log.warning("done")
torch.save(model.state_dict(), "weights.pt")
print(sorted(handler.__class__.__name__ for handler in logging.root.handlers), logging.root.level)
