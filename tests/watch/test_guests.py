"""A watched model can still be saved, copied, averaged and forked."""

from __future__ import annotations

import copy
import io
import os
import pickle
import sys

import torch
import torch.nn.functional as F

import seismograd as sg


def step(model, optimizer, data):
    x, y = data
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


def test_a_watched_model_is_saved_whole_without_a_trace_of_us(watching, model, data):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    step(model, optimizer, data)
    file = io.BytesIO()
    torch.save(model, file)
    assert b"seismograd" not in file.getvalue(), "it loads where Seismograd is not installed"
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert torch.equal(loaded(data[0]), model(data[0]))
    assert torch.equal(pickle.loads(pickle.dumps(model))(data[0]), model(data[0]))
    assert len(run.readings) == 1


def test_a_copy_of_a_watched_model_is_not_watched(watching, model, data):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    step(model, optimizer, data)
    twin = copy.deepcopy(model)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    step(twin, torch.optim.SGD(twin.parameters(), lr=0.1), data)
    averaged(data[0])
    assert len(run.readings) == 1
    step(model, optimizer, data)
    assert len(run.readings) == 2


def test_a_forked_child_is_not_watched_and_says_nothing(model, data):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told, engine = [], torch.autograd._engine_run_backward
    watch = sg.watch(model, optimizer, sinks=[told.append])
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            patched = torch.autograd._engine_run_backward is not engine
            watch.close()  # what atexit would do
            code = int(bool(told) or patched)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    step(model, optimizer, data)
    watch.close()
    assert watch.report()["run"]["steps"] == 1
