"""`seismograd run --preflight`: on the first real batch, in the same report, and nobody notices."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.head = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)
        self.spare = nn.Linear(2, 2)

    def forward(self, x):
        return self.head(nn.functional.dropout(self.norm(torch.relu(self.layer(x))), 0.5)) * SCALE

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
x, y = torch.randn(64, 6), torch.randint(0, 3, (64,))
for step in range(6):
    at = torch.randint(0, 64, (16,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x[at]), y[at])
    loss.backward()
    optimizer.step()
print([p.double().sum().item() for p in (*model.parameters(), *model.buffers())], torch.rand(1).item())
"""


def run(path, *options):
    environment = {**os.environ, "SEISMOGRAD_CAPTURE": "0"}
    command = (
        [sys.executable, "-m", "seismograd", "run", *options, str(path)] if options else [sys.executable, str(path)]
    )
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=True, cwd=path.parent)


@pytest.mark.parametrize("scale", ["1", "1000"])
def test_it_checks_and_goes_on(tmp_path, scale):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("SCALE", scale))
    done = run(script, "--preflight", "--report", str(tmp_path / "report.json"))
    assert done.stdout == run(script).stdout
    assert "seismograd: preflight: 6 checks in" in done.stderr
    assert "left out: overfits one batch, learning rate, the loader keeps up, memory" in done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    found = {finding["id"]: finding["step"] for finding in report["findings"]}
    assert {"train-mode-evaluation", "unused-parameter"} <= set(found)
    assert ("bad-initialization" in found) == (scale == "1000")
    assert found["train-mode-evaluation"] == 0


def test_an_id_that_is_to_be_ignored(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("SCALE", "1"))
    run(script, "--preflight", "--ignore", "train-mode-evaluation", "--report", str(tmp_path / "report.json"))
    report = json.loads((tmp_path / "report.json").read_text())
    assert "train-mode-evaluation" not in [finding["id"] for finding in report["findings"]]
