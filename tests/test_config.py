"""`[tool.seismograd]` in the user's pyproject.toml."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from torch import nn

import seismograd as sg
from seismograd.config import find_config
from seismograd.detectors import DEFAULT
from seismograd.judge import Judge


@pytest.fixture
def project(tmp_path, monkeypatch):
    def write(text):
        (tmp_path / "pyproject.toml").write_text(text)
        deep = tmp_path / "src" / "deep"
        deep.mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(deep)
        return tmp_path

    return write


def test_level_budget_and_ignored_ids_are_taken_from_the_nearest_file(project):
    project('[tool.seismograd]\nlevel = "basic"\nbudget = 0.02\nignore = ["nonfinite-loss"]\n')
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        assert watch.level is sg.DebugLevel.BASIC
        assert watch.governor.budget == 0.02
        (model(torch.ones(1, 2)).sum() * float("nan")).backward()
        optimizer.step()
    ids = {finding.id for finding in watch.findings}
    assert "nonfinite-loss" not in ids
    assert "nonfinite-gradient" in ids
    with sg.watch(model, optimizer, sinks=[], level="extreme", budget=0.5) as watch:
        assert (watch.level, watch.governor.budget) == (sg.DebugLevel.EXTREME, 0.5), "what is said in the call wins"


def test_limits_of_a_detector_are_set(project):
    project("[tool.seismograd.limits.overfitting]\nvalidations = 99\n")
    adjusted = {d.id: d for d in find_config().apply(DEFAULT)}
    assert adjusted["overfitting"].validations == 99
    assert next(d for d in DEFAULT if d.id == "overfitting").validations != 99
    assert len(adjusted) == len(DEFAULT)


@pytest.mark.parametrize("detector", DEFAULT, ids=lambda detector: detector.id)
def test_every_limit_of_every_detector_can_be_set(project, detector):
    limits = {part.name: getattr(detector, part.name) for part in fields(detector)}
    changed = {name: value + 1 if isinstance(value, int) else value * 2 + 1e-9 for name, value in limits.items()}
    lines = "".join(f"{name} = {value!r}\n" for name, value in changed.items())
    project(f"[tool.seismograd.limits.{detector.id}]\n{lines}")
    adjusted = {each.id: each for each in find_config().apply(DEFAULT)}
    assert adjusted.pop(detector.id) == replace(detector, **changed)
    assert list(adjusted.values()) == [each for each in DEFAULT if each.id != detector.id]


def test_every_finding_can_be_ignored(project):
    for detector in DEFAULT:
        project(f'[tool.seismograd]\nignore = ["{detector.id}"]\n')
        asked = Judge(DEFAULT, ignore=find_config().ignore).detectors
        assert [each.id for each in asked] == [each.id for each in DEFAULT if each.id != detector.id]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.seismograd]\nlevle = 'basic'\n", "unknown key 'levle'"),
        ("[tool.seismograd]\nignore = 'loss-spike'\n", "list of finding ids"),
        ("[tool.seismograd.limits.overfitting]\nvalidation = 9\n", "has no limit 'validation'.*validations"),
        ("[tool.seismograd]\nlimits = 3\n", "table for each finding id"),
        ("[tool.seismograd]\nlevel = 'loud'\n", "'loud' is unknown"),
        ("[tool.seismograd]\nbudget = 'a'\n", "budget is 'a', not a number"),
        ("[tool.seismograd]\nbudget = true\n", "budget is True, not a number"),
        ("[tool.seismograd]\nignore = 3\n", "list of finding ids"),
        ("[tool]\nseismograd = 3\n", "is 3, not a table"),
        ("[tool.seismograd.limits.overfitting]\nvalidations = '12'\n", "validations is '12', not a number"),
    ],
)
def test_mistakes_are_named(project, text, words):
    project(text)
    with pytest.raises(ValueError, match=words):
        sg.TrainingDebugger()


def test_files_without_the_table_do_not_matter(project, tmp_path):
    root = project("[tool.other]\nx = 1\n")
    assert find_config().path is None
    (root / "pyproject.toml").write_text("this is no toml [")
    assert find_config().path is None


def test_ignoring_what_does_not_exist_is_said():
    with pytest.warns(UserWarning, match="'loss-spikes' names no finding.*'loss-spike'"):
        sg.TrainingDebugger(ignore="loss-spikes")


def test_limits_and_ignored_ids_that_do_not_exist_are_said(project):
    project("[tool.seismograd]\nignore = ['loss-spikes']\n[tool.seismograd.limits.overfit]\nx = 1\n")
    with pytest.warns(UserWarning, match="names no finding") as told:
        sg.TrainingDebugger()
    assert {"overfit" in str(w.message) or "loss-spikes" in str(w.message) for w in told} == {True}
    assert len(told) == 2


def test_detectors_of_ones_own_replace_the_default_ones():
    model = nn.Linear(2, 1)
    only = [d for d in DEFAULT if d.id == "nonfinite-loss"]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[], detectors=only) as watch:
        (model(torch.ones(1, 2)).sum() * float("nan")).backward()
        optimizer.step()
    assert [finding.id for finding in watch.findings] == ["nonfinite-loss"]
    with pytest.raises(TypeError, match="not a detector"):
        sg.TrainingDebugger(detectors=[42])
    with pytest.raises(TypeError, match="not a detector"):
        sg.TrainingDebugger(detectors=[type(only[0])])
