"""A loop without torch: logistic regression by hand in NumPy, judged by the same detectors.

python examples/numpy/train.py           healthy
python examples/numpy/train.py 1e6       the learning rate is absurd, and the loss NaN
"""

import sys

import numpy as np

import seismograd as sg

rng = np.random.default_rng(0)
inputs = rng.normal(size=(512, 8))
labels = (inputs @ rng.normal(size=8) + 0.3 * rng.normal(size=512) > 0).astype(float)
weights, bias = np.zeros(8), np.zeros(1)
lr = float(sys.argv[1]) if len(sys.argv) > 1 else 0.5

debugger = sg.TrainingDebugger()
for step in range(200):
    batch = rng.integers(0, 512, 64)
    scores = inputs[batch] @ weights + bias
    chance = 1 / (1 + np.exp(-np.clip(scores, -500, 500)))
    error = chance - labels[batch]
    with np.errstate(all="ignore"):  # the textbook formula: NaN where a chance is exactly 0 or 1
        loss = float(-np.mean(labels[batch] * np.log(chance) + (1 - labels[batch]) * np.log(1 - chance)))
    gradients = [inputs[batch].T @ error / 64, np.array([error.mean()])]
    debugger.step(step=step, loss=loss, gradients=gradients, learning_rate=lr)
    weights -= lr * gradients[0]
    bias -= lr * gradients[1]
    if step % 50 == 0:
        print(f"step {step:3}  loss {loss:.4f}")

report = debugger.report()
print(report["status"], report["issues"])
for advice in report["recommendations"]:
    print("-", advice)
