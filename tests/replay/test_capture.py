"""A bad step on disk: what goes in comes out, the policy, and captures that somebody has tampered with."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import math
import os
import shutil
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import seismograd as sg
from seismograd import folders
from seismograd.records import Origin, Reading, Where
from seismograd.replay.again import Capture, CaptureError, rerun
from seismograd.replay.capture import MOST_CAPTURES, Captures
from seismograd.replay.packing import Lost, Packer, Unpacker, lost_in
from seismograd.replay.recorder import Step

CPU = torch.device("cpu")


# -- nestings and tensors ----------------------------------------------------------------------------------------------


def there_and_back(value, tmp_path):
    from safetensors.torch import load_file, save_file

    packer = Packer()
    text = json.dumps(packer.pack(value, "value"), allow_nan=False)
    save_file(packer.contents(), tmp_path / "t.safetensors")
    return Unpacker(load_file(tmp_path / "t.safetensors"), lambda _: CPU).value(json.loads(text)), packer


TENSORS = {
    "plain": torch.randn(3, 4),
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 3),
    "nan": torch.tensor([math.nan, math.inf, -math.inf, 0.0]),
    "bool": torch.tensor([True, False]),
    "int64": torch.tensor([2**62, -5]),
    "uint16": torch.tensor([7, 65535], dtype=torch.uint16),
    "half": torch.randn(4).half(),
    "bfloat16": torch.randn(4).bfloat16(),
    "float8": torch.randn(6).to(torch.float8_e4m3fn),
    "float8 scalar": torch.tensor(1.5).to(torch.float8_e5m2),
    "complex": torch.randn(2, 3, dtype=torch.complex64),
    "complex128 conjugate": torch.randn(2, 3, dtype=torch.complex128).conj(),
    "transposed": torch.randn(3, 4).t(),
    "channels last": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "expanded": torch.randn(3, 1).expand(3, 4),
    "strided": torch.randn(10)[::2],
    "a part": torch.randn(10)[3:6],
    "negative view": torch.randn(3, dtype=torch.complex64).conj().imag,
}


def bits_of(tensor):
    return tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_of_any_kind_comes_back(name, tmp_path):
    tensor = TENSORS[name]
    made, packer = there_and_back(tensor, tmp_path)
    assert (made.dtype, made.shape) == (tensor.dtype, tensor.shape)
    assert torch.equal(bits_of(made), bits_of(tensor))
    if name in ("transposed", "channels last"):
        assert made.stride() == tensor.stride()
    assert not packer.lost


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_come_back(tmp_path):
    dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    coo, csr = dense.to_sparse(), dense.to_sparse_csr()
    twice = torch.sparse_coo_tensor([[0, 0], [1, 1]], torch.tensor([1.0, 2.0]), (2, 2))
    made, _ = there_and_back([coo, csr, twice, coo.to(torch.complex64)], tmp_path)
    assert [each.layout for each in made[:2]] == [torch.sparse_coo, torch.sparse_csr]
    assert torch.equal(made[0].to_dense(), dense)
    assert torch.equal(made[1].to_dense(), dense)
    assert torch.equal(made[2]._values(), twice._values())
    assert not made[2].is_coalesced()
    assert made[3].dtype == torch.complex64


Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    label: str


class Mine:
    """Holds no tensor, so nothing could be stood in for."""


def test_nestings_come_back(tmp_path):
    x = torch.randn(2, requires_grad=True)
    value = {
        "list": [1, 2.5, None, True, "a", b"\0\1"],
        "tuple": (x, [x, {"deep": (x,)}]),
        3: {(1, "key"): {1, 2}, None: frozenset({"f"})},
        "odd": [math.nan, -math.inf, 2**80, 1 + 2j, slice(1, None, 2), range(3), torch.Size([2, 3])],
        "torch": [torch.float16, torch.device("cpu")],
        "records": [Pair(x, 2), Batch(x, "cat"), SimpleNamespace(width=3), collections.OrderedDict(a=x)],
    }
    made, packer = there_and_back(value, tmp_path)
    assert made["list"] == value["list"]
    assert made[3] == value[3]
    assert [repr(each) for each in made["odd"]] == [repr(each) for each in value["odd"]]
    assert made["torch"] == value["torch"]
    one = made["tuple"][0]
    assert one.requires_grad
    assert one.is_leaf
    assert one is made["tuple"][1][0] is made["tuple"][1][1]["deep"][0], "one tensor stays one"
    pair, batch, namespace, mapping = made["records"]
    assert (pair.first is one, pair[1], len(pair)) == (True, 2, 2)
    assert (batch.x is one, batch.label) == (True, "cat")
    assert namespace.width == 3
    assert mapping["a"] is mapping.a is one
    assert dict(**mapping).keys() == {"a"}
    assert not packer.lost


def test_packed_sequences_and_arrays_come_back(tmp_path):
    import numpy

    sequence = pack_sequence([torch.randn(3, 2), torch.randn(1, 2)])
    made, _ = there_and_back([sequence, numpy.arange(3), numpy.float32(2.5)], tmp_path)
    assert type(made[0]) is type(sequence)
    assert torch.equal(made[0].data, sequence.data)
    assert made[1].tolist() == [0, 1, 2]
    assert (made[2], made[2].dtype) == (2.5, numpy.float32)


def test_what_cannot_be_stored_is_named(tmp_path):
    value = [Mine(), torch.zeros(2, device="meta"), nn.Linear(1, 1), lambda: 0, {"deep": Mine()}]
    made, packer = there_and_back(value, tmp_path)
    assert len(lost_in(made)) == 5
    assert all(isinstance(each, Lost) for each in made[:4])
    assert packer.lost[0].startswith("value[0] is a ")
    assert packer.lost[0].endswith("Mine, which cannot be stored")
    assert packer.lost[1] == "value[1] is a tensor on the meta device, which cannot be stored"
    assert "value[4]['deep'] is a " in packer.lost[4]
    assert Packer().pack(list(range(20_000)), "value") == {"lost": "list of 20,000 items"}
    circle: list = []
    circle.append(circle)
    assert Packer().pack(circle, "value")


def test_tensors_that_share_memory_are_stored_once_each():
    x = torch.randn(4)
    packer = Packer()
    packer.pack([x, x, x[:2], x.view(2, 2)], "value")
    stored = packer.contents()
    assert len(stored) == 3, "the same object once, views for themselves"
    assert len({each.untyped_storage().data_ptr() for each in stored.values()}) == 3


# -- captures of a watch -----------------------------------------------------------------------------------------------


class Roots(nn.Module):
    """Goes bad in backward where dropout leaves zeros, in forward where `x` is below zero."""

    def __init__(self, width=4):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(width, width)
        self.back = nn.Linear(width, width)
        self.back.weight = self.head.weight
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x, *, logs=False):
        self.calls += 1
        h = self.back(self.head(self.drop(torch.relu(self.norm(x)))))
        h = torch.log(h - 100) if logs else torch.sqrt(self.drop(h.abs()))  # <- both
        return {"h": h}


def train(model, batches, **kwargs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kwargs.setdefault("sinks", [])
    with sg.watch(model, optimizer, **kwargs) as watch:
        for x, more in batches:
            optimizer.zero_grad()
            model(x, **more)["h"].sum().backward()
            optimizer.step()
    return watch


@pytest.fixture
def captured():
    """A model, and the folder of its step 0 that went bad in backward."""
    model = Roots()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    watch = train(model, [(torch.randn(8, 4), {})])
    (finding,) = [each for each in watch.findings if "capture" in each.evidence]
    return before, finding, Path(finding.evidence["capture"])


def test_the_first_bad_step_is_saved_with_the_weights_of_before_the_update(captured, home):
    before, finding, folder = captured
    assert folder.parent.parent == home
    assert folder.name == "step-000000-nonfinite-gradient"
    assert sorted(each.name for each in folder.iterdir()) == ["capture.json", "tensors.safetensors"]
    assert (home / ".gitignore").read_text() == "*\n"
    told = json.loads((folder / "capture.json").read_text())
    assert (told["schema"], told["step"], told["finding"]) == (1, 0, "nonfinite-gradient")
    assert told["run"] == folder.parent.name
    assert told["torch"] == torch.__version__
    (root,) = told["roots"]
    assert root["class"].endswith("Roots")
    assert root["source"].startswith("class Roots(nn.Module)")
    assert told["origin"]["where"]["line"] == finding.where.line
    state = Capture.load(folder).state(0)
    assert torch.equal(state["head.weight"], before["head.weight"])
    assert state["head.weight"] is state["back.weight"], "tied weights stay tied"
    assert "calls" in state, "a buffer that is not in the state dict"


def test_another_process_finds_the_same_origin(captured):
    _, finding, folder = captured
    torch.manual_seed(99)
    model = Roots()
    own = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    origin = sg.replay(folder, model)
    assert (origin.phase, origin.forward_op) == ("backward", "aten.sqrt")
    assert (origin.where.line, origin.where.module) == (finding.where.line, finding.where.module)
    assert origin.bad == finding.evidence["bad"], "dropout drew the same numbers"
    assert rerun(Capture.load(folder), model).same
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(own[name], value) for name, value in model.state_dict().items()), "its own weights again"
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_forward_fault_is_found_again(home):
    watch = train(Roots(), [(torch.randn(8, 4), {"logs": True})])
    (finding,) = [each for each in watch.findings if "capture" in each.evidence]
    replayed = rerun(Capture.load(finding.evidence["capture"]), Roots())
    assert finding.id == "nonfinite-activation"
    assert (replayed.found, replayed.same, replayed.outside) == (True, True, False)
    assert replayed.origin.where.op == "aten.log"


def test_a_mended_model_is_clean(captured):
    class Mended(Roots):
        def forward(self, x, *, logs=False):
            h = self.back(self.head(self.drop(torch.relu(self.norm(x)))))
            return {"h": torch.sqrt(self.drop(h.abs()) + 1e-6)}

    replayed = rerun(Capture.load(captured[2]), Mended())
    assert (replayed.found, replayed.same, replayed.origin.phase) == (False, False, "")


def test_each_kind_is_saved_once_and_three_at_most(home, tmp_path):
    notes: list[str] = []
    captures = Captures("run", note=notes.append, home=tmp_path / "kept")
    phases = ["backward", "backward", "forward", "input", "loss", "optimizer"]
    told = [
        captures(Step(), {}, Reading(step=at), Origin(phase, Where(module=""))).facts.get("capture")
        for at, phase in enumerate(phases)
    ]
    assert [each is not None for each in told] == [True, False, True, True, False, False]
    assert len(list((tmp_path / "kept" / "run").iterdir())) == MOST_CAPTURES == 3
    assert not notes


def test_ranks_that_save_the_same_step_have_a_folder_each(monkeypatch, tmp_path):
    """As where a batch that recovery acted on is kept on all of them."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        Captures("run", note=print, home=tmp_path).recovered(Step(), {}, Reading(step=3))
    kept = folders.captures_in(tmp_path / "run")
    assert [each.path.name for each in kept] == ["step-000003-recovered", "step-000003-recovered-rank-1"]


def test_nothing_is_saved_of_a_step_that_was_not_run_again(tmp_path):
    captures = Captures("run", note=print, home=tmp_path / "kept")
    assert captures(Step(), {}, Reading(step=0), Origin("", note="?")).facts == {}
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("off", ["environment", "config", "replay"])
def test_it_can_be_turned_off(off, home, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    if off == "environment":
        monkeypatch.setenv("SEISMOGRAD_CAPTURE", "0")
    elif off == "config":
        (tmp_path / "pyproject.toml").write_text("[tool.seismograd]\ncapture = false\n")
    watch = train(Roots(), [(torch.randn(8, 4), {})], replay=off != "replay")
    assert watch.findings
    assert not any("capture" in finding.evidence for finding in watch.findings)
    assert not home.exists()


def test_a_wrong_setting_is_told(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.seismograd]\ncapture = "no"\n')
    with pytest.raises(ValueError, match="capture is 'no': it takes true or false"):
        sg.TrainingDebugger()


def test_a_step_that_is_too_large_is_described_only(monkeypatch):
    monkeypatch.setenv("SEISMOGRAD_CAPTURE_LIMIT", "0")
    watch = train(Roots(), [(torch.randn(8, 4), {})])
    (finding,) = [each for each in watch.findings if "capture" in each.evidence]
    folder = Path(finding.evidence["capture"])
    assert [each.name for each in folder.iterdir()] == ["capture.json"]
    note = finding.evidence["capture_note"]
    assert "SEISMOGRAD_CAPTURE_LIMIT=1" in note
    assert note in [event["message"] for event in watch.events]
    with pytest.raises(ValueError, match="holds no tensors, so it cannot be run again: the tensors of the step take"):
        sg.replay(folder, Roots())


def test_what_is_not_the_models_is_left_out_first(tmp_path):
    """A frozen teacher of 4 MiB, where 1 MiB is allowed."""

    class Square(nn.Module):
        def forward(self, x):
            return torch.sqrt(x * 0)

    student = nn.Sequential(nn.Linear(4, 4), Square())
    teacher = nn.Sequential(nn.Linear(4, 1024), nn.Linear(1024, 1024), nn.Linear(1024, 4)).requires_grad_(False)
    watch = sg.watch(student, sinks=[], strict=True)
    watch.captures._limit = 1
    x = torch.randn(2, 4)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    nn.functional.mse_loss(student(x), teacher(x)).backward()
    optimizer.step()
    watch.close()
    (finding,) = [each for each in watch.findings if "capture" in each.evidence]
    origin = sg.replay(finding.evidence["capture"], nn.Sequential(nn.Linear(4, 4), Square()))
    assert origin.where.op == finding.evidence["op"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to_is_noted(home):
    home.mkdir()
    home.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        check_that_training_goes_on()
    finally:
        home.chmod(stat.S_IRWXU)


def test_a_file_in_the_place_of_the_folder_is_noted(home):
    home.write_text("")
    check_that_training_goes_on()


def test_a_full_disk_is_noted_and_nothing_is_left(home, monkeypatch):
    import safetensors.torch

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    check_that_training_goes_on("No space left on device")
    assert [each for run in home.iterdir() if run.is_dir() for each in run.iterdir()] == []


def check_that_training_goes_on(reason=""):
    watch = train(Roots(), [(torch.randn(8, 4), {})] * 2, strict=True)
    (finding,) = [each for each in watch.findings if "capture_note" in each.evidence]
    assert "capture" not in finding.evidence
    assert finding.evidence["capture_note"].startswith("the step was not saved: ")
    assert reason in finding.evidence["capture_note"]
    assert finding.evidence["capture_note"] in [event["message"] for event in watch.events]


# -- several modules, and faults outside of them -----------------------------------------------------------------------


def test_a_fault_in_the_loop_leaves_the_model_clean():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        torch.log(model(torch.ones(2, 3)) * 0).mean().backward()
        optimizer.step()
    (finding,) = [each for each in watch.findings if "capture" in each.evidence]
    replayed = rerun(Capture.load(finding.evidence["capture"]), nn.Linear(3, 1))
    assert (replayed.found, replayed.outside) == (False, True)
    assert replayed.origin.where.line == finding.where.line
    assert "the model itself is clean" in replayed.origin.note


def test_a_bad_batch_is_found_again():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        model(torch.tensor([[1.0, math.nan, 1.0]])).mean().backward()
        optimizer.step()
    (finding,) = [each for each in watch.findings if "capture" in each.evidence]
    replayed = rerun(Capture.load(finding.evidence["capture"]), nn.Linear(3, 1))
    assert finding.id == "nonfinite-input"
    assert (replayed.found, replayed.same, replayed.outside) == (True, True, True)


class Generator(nn.Linear):
    def forward(self, x):
        return torch.sqrt(super().forward(x) * 0)


class Critic(nn.Linear):
    pass


def gan():
    generator, critic = Generator(2, 2), Critic(2, 1)
    both = [*generator.parameters(), *critic.parameters()]
    optimizer = torch.optim.SGD(both, lr=0.1)
    with sg.watch({"generator": generator, "critic": critic}, optimizer, sinks=[]) as watch:
        nn.BCEWithLogitsLoss()(critic(generator(torch.randn(3, 2))), torch.ones(3, 1)).backward()
        optimizer.step()
    (finding,) = [each for each in watch.findings if "capture" in each.evidence]
    return finding


def test_of_several_models_the_given_one_is_run_and_the_others_are_named():
    finding = gan()
    replayed = rerun(Capture.load(finding.evidence["capture"]), Generator(2, 2))
    assert replayed.same
    assert replayed.origin.where.module == "generator"
    assert len(replayed.notes) == 2
    assert "the call of Critic" in replayed.notes[0]
    assert "the call of BCEWithLogitsLoss" in replayed.notes[1]
    assert not rerun(Capture.load(finding.evidence["capture"]), Critic(2, 1)).found
    both = nn.ModuleDict({"generator": Generator(2, 2), "critic": Critic(2, 1)})
    replayed = rerun(Capture.load(finding.evidence["capture"]), both)
    assert replayed.same
    assert len(replayed.notes) == 1


def test_a_model_that_does_not_fit_is_told_how(captured):
    _, _, folder = captured
    with pytest.raises(ValueError, match=r"norm.weight is \(4,\) in the capture and \(5,\) in the model"):
        sg.replay(folder, Roots(5))
    with pytest.raises(
        ValueError, match=r"the model has no norm\.weight, norm\.bias, .* and 7 more; the capture has no"
    ):
        sg.replay(folder, nn.Linear(4, 4))
    with pytest.raises(ValueError, match=r"not an nn\.Module"):
        sg.replay(folder, Roots)
    with pytest.raises(ValueError, match="is none of the modules that were called in the step: generator"):
        sg.replay(gan().evidence["capture"], nn.Conv2d(1, 1, 1))


def test_an_argument_that_was_lost_is_named():
    class Odd(Roots):
        def forward(self, x, more=None):
            return super().forward(x)

    watch = train(Odd(), [(torch.randn(8, 4), {"more": Mine()})])
    (finding,) = [each for each in watch.findings if "capture" in each.evidence]
    assert "Mine, which cannot be stored" in finding.evidence["capture_note"]
    with pytest.raises(ValueError, match=r"no call of the step can be made again; .*an argument could not be stored"):
        sg.replay(finding.evidence["capture"], Odd())


def test_autocast_modes_and_flags_are_as_they_were():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Dropout(0.5)

        def forward(self, x):
            assert torch.is_autocast_enabled("cpu")
            assert not self.b.training
            return torch.log(self.a(x) * 0)

    model = Mixed()
    model.b.eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(torch.randn(2, 4)).float().mean()
        loss.backward()
        optimizer.step()
    (finding,) = [each for each in watch.findings if "capture" in each.evidence]
    replayed = rerun(Capture.load(finding.evidence["capture"]), Mixed())
    assert replayed.same
    assert replayed.origin.facts["autocast"] == "cpu bfloat16"


# -- hostile captures --------------------------------------------------------------------------------------------------


@pytest.fixture
def tamper(captured, tmp_path):
    """A copy of the capture, in which something is changed."""

    def change(edit=None, *, text=None, tensors=None):
        folder = tmp_path / "tampered"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(captured[2], folder)
        path = folder / "capture.json"
        if edit is not None:
            told = json.loads(path.read_text())
            edit(told)
            path.write_text(json.dumps(told))
        if text is not None:
            path.write_text(text(path.read_text()))
        if tensors is not None:
            file = folder / "tensors.safetensors"
            file.write_bytes(tensors(file.read_bytes()))
        return folder

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tensors": lambda data: data[:-100]}, "is damaged"),
        ({"tensors": lambda data: data[:4]}, "is damaged"),
        ({"tensors": lambda data: b"\xff" * 8 + data[8:]}, "is damaged"),
        ({"tensors": lambda data: b""}, "is damaged"),
        ({"text": lambda text: text[:500]}, "is damaged"),
        ({"text": lambda text: ""}, "is damaged"),
        ({"text": lambda text: "[1]"}, "holds no object"),
        ({"text": lambda text: text.replace('"step": 0', '"step": NaN')}, "NaN is no JSON"),
        ({"text": lambda text: text.replace('"step": 0', '"step": ' + "9" * 5000)}, "is damaged"),
        ({"text": lambda text: text.replace('"step": 0', '"step": 1e999')}, "is damaged"),
        ({"text": lambda text: "[" * 100_000}, "is damaged"),
        ({"edit": lambda told: told.update(schema=2)}, "has schema 2, this Seismograd reads 1"),
        ({"edit": lambda told: told.pop("schema")}, "has schema None"),
        ({"edit": lambda told: told.pop("calls")}, "is damaged: no 'calls'"),
        ({"edit": lambda told: told.update(calls=3)}, "is damaged"),
        ({"edit": lambda told: told["calls"][0].pop("args")}, "is damaged: no 'args'"),
        ({"edit": lambda told: told["origin"].update(where={"file": 3})}, "is damaged"),
        ({"edit": lambda told: told["origin"].update(where={"nonsense": "x"})}, "is damaged"),
    ],
)
def test_a_capture_that_is_damaged_is_told(change, message, tamper):
    with pytest.raises(CaptureError, match=message):
        rerun(Capture.load(tamper(**change)), Roots())


def tensor_of(told):
    return told["calls"][0]["args"][0]["tensor"]


@pytest.mark.parametrize(
    "edit",
    [
        lambda told: tensor_of(told).update(plain="../../../etc/passwd"),
        lambda told: tensor_of(told).update(plain=["call 0/args[0]"]),
        lambda told: tensor_of(told).update(shape=[10**30, 4]),
        lambda told: tensor_of(told).update(shape=[4, 8]),
        lambda told: tensor_of(told).update(dtype="load"),
        lambda told: tensor_of(told).update(dtype="float64"),
        lambda told: tensor_of(told).update(order=[5, 7]),
        lambda told: told["calls"][0]["args"].__setitem__(0, {"record": "object", "items": [["__class__", 1]]}),
        lambda told: told["calls"][0]["args"].__setitem__(0, {"pickle": "gASVAAAA"}),
        lambda told: told["calls"][0]["args"].__setitem__(0, {"dict": [[{"list": []}, 1]]}),
        lambda told: told["calls"][0]["randomness"].update(torch=told["calls"][0]["args"][0]),
        lambda told: told["calls"][0]["autocast"].update(kinds=[["cpu", True, "os"]]),
        lambda told: told["calls"][0].update(buffers={"norm.running_mean": told["calls"][0]["args"][0]}),
        lambda told: told.update(default_dtype="Tensor"),
        lambda told: told["calls"][0].update(spot={"file": "x"}),
        lambda told: told["passes"][0].update(calls=["x"]),
        lambda told: told["roots"][0]["state"].update({"head.weight": {"tensor": {}}}),
        lambda told: told["models"][0].update(path="nowhere"),
    ],
)
def test_nonsense_in_a_capture_is_told_and_never_executed(edit, tamper):
    with contextlib.suppress(CaptureError):
        replayed = rerun(Capture.load(tamper(edit)), Roots())
        assert not replayed.same, "it should have been refused, or made a difference"


def test_sparse_indices_out_of_range_are_refused():
    packed = {
        "tensor": {
            "dtype": "float32", "shape": [2, 2], "device": "cpu", "requires_grad": False, "layout": "coo",
            "indices": "i", "values": {"plain": "v"}, "coalesced": True,
        }
    }  # fmt: skip
    tensors = {"i": torch.tensor([[0, 9], [0, 9]]), "v": torch.ones(2)}
    with pytest.raises(RuntimeError, match="size is inconsistent"):
        Unpacker(tensors, lambda _: CPU).tensor(packed)


def test_what_a_capture_says_cannot_command_the_terminal(tamper):
    folder = tamper(lambda told: told["origin"]["where"].update(code="\x1b[2Jgone"))
    assert Capture.load(folder).origin.where.code == "\N{REPLACEMENT CHARACTER}[2Jgone"


def test_a_random_state_that_is_none_is_refused(tamper):
    def edit(told):
        told["calls"][0]["randomness"]["numpy"] = {
            "key": told["calls"][0]["args"][0], "pos": 10**6, "has_gauss": 0, "gauss": 0.0
        }  # fmt: skip

    with pytest.raises(CaptureError, match="is damaged"):
        rerun(Capture.load(tamper(edit)), Roots())


# -- finding them ------------------------------------------------------------------------------------------------------


@pytest.fixture
def shelf(home):
    for name in ("20260101-aaa/step-000001-nonfinite-loss", "20260102-bbb/step-000002-nonfinite-loss"):
        (home / name).mkdir(parents=True)
        (home / name / "capture.json").write_text("{}")
    second = home / "20260102-bbb" / "step-000005-nonfinite-gradient"
    second.mkdir()
    (second / "capture.json").write_text("{}")
    return home


def test_a_capture_is_found_by_its_run_by_how_that_begins_or_by_its_path(shelf):
    first = shelf / "20260101-aaa" / "step-000001-nonfinite-loss"
    assert folders.find("20260101-aaa") == folders.find("20260101") == folders.find(str(first)) == first
    assert folders.find(str(first / "capture.json")) == folders.find(str(first.parent)) == first
    assert folders.find("20260102", 5).name == "step-000005-nonfinite-gradient"
    assert folders.find("2026", 1) == first


@pytest.mark.parametrize(
    ("run", "step", "message"),
    [
        ("2026", None, r"'2026' means 3 captures, say which with more of the run's id:\n  20260101-aaa  step 1"),
        ("20260102-bbb", None, r"means 2 captures, say which with --step, or the folder's path:\n.*step 2.*\n.*step 5"),
        ("20260102-bbb", 3, r"has no capture of step 3:\n.*step 2"),
        ("nope", None, r"there is no capture of a run 'nope': in .* there is\n  20260102-bbb  step 2  nonfinite-loss"),
        ("", None, "no run was named"),
        ("../../..", None, "is no capture: there is no capture.json in it"),
    ],
)
def test_what_is_not_found_is_told_with_what_there_is(run, step, message, shelf):
    with pytest.raises(ValueError, match=message):
        folders.find(run, step)


def test_where_nothing_was_saved_that_is_told(home):
    with pytest.raises(ValueError, match="there is none"):
        folders.find("2026")
