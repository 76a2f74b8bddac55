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
    assert "seismograd: preflight: a copy of the model is trained on the first batch" in done.stderr
    assert "checks in" in done.stderr
    assert "left out: the loader keeps up (no loader was given)" in done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    found = {finding["id"]: finding["step"] for finding in report["findings"]}
    assert {"train-mode-evaluation", "unused-parameter"} <= set(found)
    assert ("bad-initialization" in found) == (scale == "1000")
    assert found["train-mode-evaluation"] == 0


LOOPS = {
    "a view": ("", "loss = F.cross_entropy(model(x[at]).view(-1, 3), y[at].view(-1)) / 4"),
    "a slice": ("", "loss = F.cross_entropy(model(x[at])[:8], y[at][:8])"),
    "autocast": (
        "",
        "with torch.autocast('cpu', dtype=torch.bfloat16): loss = F.cross_entropy(model(x[at]), y[at])",
    ),
    "its own loss": (
        "class Whole(nn.Sequential):\n    def forward(self, x, y):\n"
        "        return {'loss': F.cross_entropy(super().forward(x), y)}\nmodel = Whole(*model)",
        "loss = model(x[at], y=y[at])['loss']",
    ),
}
ALONE = """
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
BEFORE
optimizer = torch.optim.Adam(model.parameters(), lr=LR)
x = torch.randn(64, 6)
y = x[:, :3].argmax(1)
for step in range(30):
    at = torch.randint(0, 64, (16,))
    optimizer.zero_grad()
    LOSS
    loss.backward()
    optimizer.step()
print([p.double().sum().item() for p in (*model.parameters(), *model.buffers())], torch.rand(1).item())
"""


def written(path, before, loss, lr="0.003"):
    path.write_text(ALONE.replace("BEFORE", before).replace("LOSS", loss).replace("LR", lr))
    return path


@pytest.mark.sample(2)
@pytest.mark.parametrize("way", LOOPS)
def test_the_first_step_is_made_again_on_a_copy(tmp_path, way):
    script = written(tmp_path / "train.py", *LOOPS[way])
    done = run(script, "--preflight", "--report", str(tmp_path / "report.json"))
    assert done.stdout == run(script).stdout, "bit for bit"
    assert "a copy of the model is trained" in done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert [finding["id"] for finding in report["findings"] if finding["severity"] != "info"] == []


def test_a_learning_rate_far_too_high_is_known_before_the_first_step(tmp_path):
    script = written(tmp_path / "train.py", "", "loss = F.cross_entropy(model(x[at]), y[at])", lr="30.0")
    run(script, "--preflight", "--report", str(tmp_path / "report.json"))
    report = json.loads((tmp_path / "report.json").read_text())
    assert {finding["id"]: finding["step"] for finding in report["findings"]}["lr-too-high"] == 0


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("before", "loss", "why"),
    [
        ("", "loss = (model(x[at]) ** 2).mean()", "the loss is the script's own"),
        ("", "loss = F.cross_entropy(model(x[at]), y[at]) + F.cross_entropy(model(x[at]), y[at])", "exactly once"),
        ("model.register_forward_hook(lambda *a: None)", "loss = F.cross_entropy(model(x[at]), y[at])", "noticed"),
        (
            "class Once(nn.Module):\n    def __deepcopy__(self, memo):\n        torch.rand(3)\n"
            "        raise TypeError('one')\n"
            "    def forward(self, x):\n        return x\nmodel.append(Once())",
            "loss = F.cross_entropy(model(x[at]), y[at])",
            "does not work (TypeError: one)",
        ),
        (
            "other = nn.Linear(6, 16)\nmodel[0].forward = lambda x: other(x)",
            "loss = F.cross_entropy(model(x[at]), y[at])",
            "noticed",
        ),
    ],
)
def test_where_it_cannot_be_made_again_a_line_says_why(tmp_path, before, loss, why):
    script = written(tmp_path / "train.py", before, loss)
    done = run(script, "--preflight", "--report", str(tmp_path / "report.json"))
    assert done.stdout == run(script).stdout
    assert "a copy of the model is trained" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "overfits one batch" in line]
    assert why in line


def test_an_id_that_is_to_be_ignored(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("SCALE", "1"))
    run(script, "--preflight", "--ignore", "train-mode-evaluation", "--report", str(tmp_path / "report.json"))
    report = json.loads((tmp_path / "report.json").read_text())
    assert "train-mode-evaluation" not in [finding["id"] for finding in report["findings"]]
