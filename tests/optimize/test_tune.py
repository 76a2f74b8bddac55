"""Tuning: what is faster and right is recommended, what is faster and wrong is not, and everything is put back."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import seismograd as sg
from seismograd.optimize.tuning import search
from seismograd.optimize.tuning.knobs import Knob, Variant, knobs_for
from seismograd.optimize.tuning.lanes import Interval, Lane, compare
from seismograd.optimize.tuning.parity import Parity
from seismograd.optimize.tuning.setups import Bench, Setup, rebuilt
from seismograd.optimize.tuning.tuned import Outcome, Tuning
from seismograd.replay.numbers import mapped


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small models on a busy machine wait for their threads most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def a_model(dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 24), nn.Tanh(), nn.Dropout(dropout), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 3)
    )


def some_batches(count: int = 6, size: int = 16) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(size, 6, generator=generator) for _ in range(count)]
    return [(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()) for x in inputs]


def tuned(variants: Any = None, knobs: Sequence[str] = (), **options: Any) -> Any:
    model = options.pop("model", None) or a_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches = options.pop("batches", None) or some_batches()
    options.setdefault("seconds", 15.0)
    return sg.tune(model, batches, nn.CrossEntropyLoss(), optimizer, variants=variants, knobs=knobs, **options)


@pytest.fixture
def paced(monkeypatch: pytest.MonkeyPatch) -> list[list[float]]:
    """Speed is what a variant says it is (`setup.pace`): no test depends on how fast the machine is."""
    asked: list[list[float]] = []

    def compared(lanes: Sequence[Any], *_args: Any, **_kwargs: Any) -> list[list[float]]:
        asked.append([getattr(lane.setup, "pace", 1.0) for lane in lanes])
        return [[(1.0 + 0.001 * at) / pace for pace in asked[-1]] for at in range(8)]

    monkeypatch.setattr(search, "compare", compared)
    return asked


def at_pace(pace: float, also: Callable[[Any], object] = lambda setup: None) -> Callable[[Any], None]:
    def turn(setup: Any) -> None:
        setup.pace = getattr(setup, "pace", 1.0) * pace
        also(setup)

    return turn


# -- what is recommended -----------------------------------------------------------------------------------------------


def skips_a_layer(setup: Setup) -> None:
    setup.model[3] = nn.Identity()


def calls_another_way(setup: Setup) -> None:
    """The same parameters, but one layer of them is left out."""
    layers = setup.model

    class Shorter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, x: Tensor) -> Tensor:
            return layers[5](layers[1](layers[0](x)))

    setup.model = Shorter()


def halves_the_batch(setup: Setup) -> None:
    setup.batches = [mapped(batch, lambda tensor: tensor[: len(tensor) // 2]) for batch in setup.batches]


def halves_the_loss(setup: Setup) -> None:
    whole = setup.loss_fn
    assert whole is not None
    setup.loss_fn = lambda output, target: whole(output[:8], target[:8])


def trains_nothing(setup: Setup) -> None:
    setup.optimizer.param_groups[0]["lr"] = 0.0


def steps_half_as_far(setup: Setup) -> None:
    setup.optimizer.param_groups[0]["lr"] *= 0.5


def forgets_momentum(setup: Setup) -> None:
    setup.optimizer.param_groups[0]["momentum"] = 0.0


BROKEN = [
    skips_a_layer,
    calls_another_way,
    halves_the_batch,
    halves_the_loss,
    trains_nothing,
    steps_half_as_far,
    forgets_momentum,
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_what_is_fast_and_wrong_is_shown_and_never_recommended(broken: Any, paced: list[list[float]]) -> None:
    result = tuned({"broken": at_pace(5.0, broken), "sound": at_pace(1.5)})
    wrong = result.outcome("broken")
    assert wrong.verdict == "changes learning"
    assert wrong.speedup_factor == pytest.approx(5.0)
    assert not wrong.parity.ok
    assert result.recommended is result.outcome("sound"), "the slower one, which is right"
    assert "changes learning" in str(result)


def test_the_same_is_found_to_be_the_same_and_recommended(paced: list[list[float]]) -> None:
    result = tuned({"twice": at_pace(2.0)})
    assert (result.recommended.name, result.recommended.verdict) == ("twice", "recommended")
    assert result.recommended.parity.verdict == "the same"
    assert result.reference == "float64"
    assert result.recommended.memory_savings == 0.0
    assert result.code.startswith("# 2.00x as fast")
    assert "Use twice: 2.00x as fast" in str(result)


def test_what_helps_is_combined_if_it_helps_still(paced: list[list[float]]) -> None:
    def in_the_way(setup: Any) -> None:
        setup.pace = 1.2 if getattr(setup, "pace", 1.0) == 1.0 else 0.9 * setup.pace

    result = tuned({"a": at_pace(2.0), "b": at_pace(1.5), "c": in_the_way, "d": at_pace(0.5)})
    assert result.recommended.name == "a + b"
    assert result.recommended.knobs == ("a", "b")
    assert result.outcome("a + b + c").verdict == "faster", "than the baseline, but not than a + b"
    assert result.outcome("d").verdict == "slower"
    assert not any("d" in one.knobs for one in result.outcomes if len(one.knobs) > 1)


def test_nothing_is_recommended_within_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def noisy(lanes: Sequence[Any], *_args: Any, **_kwargs: Any) -> list[list[float]]:
        return [[1.0, *([ratio] * (len(lanes) - 1))] for ratio in (0.8, 0.85, 0.9, 0.95, 0.97, 1.1, 1.2, 1.05)]

    monkeypatch.setattr(search, "compare", noisy)
    result = tuned({"lucky": at_pace(1.0)})
    assert result.recommended is None
    assert result.outcome("lucky").verdict == "no faster"
    assert "keep the loop as it is" in result.code
    assert "keep the loop as it is" in str(result)


def test_a_lucky_one_does_not_win_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def once(lanes: Sequence[Any], *_args: Any, **_kwargs: Any) -> list[list[float]]:
        calls.append(len(calls))
        return [[1.0, 0.5 if len(calls) == 2 else 1.0]] * 8  # the first is the baseline against itself

    monkeypatch.setattr(search, "compare", once)
    result = tuned({"lucky": at_pace(1.0)})
    assert result.recommended is None
    assert "2.00x at first" in str(result.outcome("lucky").note)


def test_too_few_measurements_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "compare", lambda lanes, *_args, **_kwargs: [[1.0, 0.2]] * 3)
    result = tuned({"fast": at_pace(1.0)})
    assert result.outcome("fast").verdict == "too few measurements"
    assert result.recommended is None


def test_where_the_baseline_differs_from_itself_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.6)
    monkeypatch.setattr(search, "compare", lambda lanes, *_args, **_kwargs: [[1.0, ratio] for ratio in wide])
    result = tuned({"any": at_pace(1.0)})
    assert not result.reliable
    assert "These figures are not reliable: the baseline seemed 0.62 to 1.67 times as fast as itself" in str(result)
    assert result.to_dict()["reliable"] is False
    assert result.recommended is None


def test_one_pair_is_no_interval_and_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "compare", lambda lanes, *_args, **_kwargs: [[1.0, 1.1]])
    result = tuned({"any": at_pace(1.0)})
    assert result.outcome("any").verdict == "too few measurements"
    assert "0.91-0.91" not in str(result)
    assert "only 1 time" in str(result)


def test_what_was_never_measured_is_not_called_slow() -> None:
    result = tuned({"any": at_pace(1.0)}, seconds=0.001)
    assert result.outcome("any").verdict == "not tried"
    assert "Nothing is known of any variant: the time was up" in result.code
    assert "keep the loop" not in str(result)


# -- failures are results ----------------------------------------------------------------------------------------------


def test_what_fails_is_a_result(paced: list[list[float]]) -> None:
    def hungry(_setup: Setup) -> None:
        raise torch.OutOfMemoryError("tried to allocate 8 TiB")

    def wrong_shape(setup: Setup) -> None:
        setup.model[0] = nn.Linear(7, 24)

    result = tuned({"hungry": hungry, "wrong": wrong_shape, "fine": at_pace(2.0)})
    assert result.outcome("hungry").error == "out of memory: tried to allocate 8 TiB"
    assert result.outcome("wrong").error.startswith("RuntimeError: mat1 and mat2 shapes")
    assert {result.outcome(name).verdict for name in ("hungry", "wrong")} == {"failed"}
    assert result.recommended.name == "fine"
    assert "out of memory: tried" in str(result)


def test_a_compiler_that_fails_is_a_result(monkeypatch: pytest.MonkeyPatch, paced: list[list[float]]) -> None:
    def cannot(*_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(torch, "compile", cannot)
    result = tuned(knobs=["compilation"], seconds=20.0)
    assert result.outcome("compilation").verdict == "failed"
    assert "no C++ compiler" in result.outcome("compilation").error


def test_ctrl_c_ends_it_with_what_is_known(paced: list[list[float]]) -> None:
    def interrupted(_setup: Setup) -> None:
        raise KeyboardInterrupt

    model = a_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = tuned({"a": at_pace(2.0), "b": interrupted, "c": at_pace(3.0)}, model=model)
    assert result.stopped == "stopped by Ctrl-C"
    assert result.outcome("a").verdict == "faster"
    assert result.outcome("c").verdict == "not tried"
    assert result.outcome("b").verdict == "not tried"
    assert "stopped by Ctrl-C" in str(result)
    assert "a was faster, but has not been measured once more" in result.code
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_loss_that_reaches_elsewhere_is_refused() -> None:
    model = a_model()
    with pytest.raises(ValueError, match="tried on copies"):
        sg.tune(model, some_batches(), lambda net, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        ((nn.Linear, some_batches()), {}, TypeError, "give an nn.Module"),
        ((a_model(), []), {}, ValueError, "batches is empty"),
        ((a_model(), ["words"]), {}, TypeError, "without a tensor"),
        ((a_model(), some_batches(), nn.CrossEntropyLoss), {}, TypeError, "give an instance"),
        ((a_model(), some_batches(), nn.CrossEntropyLoss()), {"seconds": 0}, ValueError, "seconds is 0"),
        ((a_model(), some_batches(), nn.CrossEntropyLoss()), {"knobs": ["ampp"]}, ValueError, "'ampp'"),
        ((a_model(), some_batches(), nn.CrossEntropyLoss()), {"knobs": ["channels_last"]}, ValueError, "no convol"),
        ((a_model(), some_batches(), nn.CrossEntropyLoss()), {"variants": [3]}, TypeError, "variants holds 3"),
        ((a_model(), some_batches(), nn.CrossEntropyLoss()), {"variants": {"x": 3}}, TypeError, "'x' is 3"),
    ],
)
def test_mistakes_are_named(arguments: Any, options: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        sg.tune(*arguments, **options)


# -- everything is put back --------------------------------------------------------------------------------------------


def test_everything_is_as_it_was(paced: list[list[float]]) -> None:
    model = a_model(dropout=0.2).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    dataset = TensorDataset(*(torch.cat(column) for column in zip(*some_batches(), strict=True)))
    generator = torch.Generator().manual_seed(7)
    loader = DataLoader(dataset, batch_size=16, shuffle=True, generator=generator)
    nn.functional.cross_entropy(model(dataset[:16][0]), dataset[:16][1]).backward()
    optimizer.step()
    random.seed(3), np.random.seed(3), torch.manual_seed(3)

    def all_of_it() -> dict[str, Any]:
        state = {f"model {name}": value.clone() for name, value in model.state_dict().items()}
        for name, one in model.named_parameters():
            assert one.grad is not None
            state[f"gradient {name}"] = one.grad.clone()
            state |= {f"state {name} {key}": value.clone() for key, value in optimizer.state[one].items()}
        return state | {
            "groups": [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups],
            "flags": [part.training for part in model.modules()],
            "torch": torch.get_rng_state(),
            "generator": generator.get_state(),
            "numpy": np.random.get_state()[1].tolist(),
            "python": random.getstate(),
            "settings": (torch.get_num_threads(), torch.get_float32_matmul_precision(), torch.get_default_dtype()),
        }

    def careless(setup: Any) -> None:
        torch.set_num_threads(3)
        torch.set_float32_matmul_precision("medium")
        torch.use_deterministic_algorithms(True)
        random.random(), np.random.random(), torch.rand(1)

    before = all_of_it()
    knobs = ["threads", "optimizer", "precision", "amp", "memory_efficient", "batch"]
    result = sg.tune(
        model, loader, nn.CrossEntropyLoss(), optimizer, seconds=15.0, knobs=knobs, variants={"careless": careless}
    )
    after = all_of_it()
    assert before.keys() == after.keys()
    for name, value in before.items():
        same = torch.equal(value, after[name]) if isinstance(value, Tensor) else value == after[name]
        assert same, name
    assert not torch.are_deterministic_algorithms_enabled()
    assert result.outcome("careless").verdict == "no faster"
    assert all(one.error is None for one in result.outcomes), str(result)


def test_a_teacher_that_the_loss_closes_over_is_as_it_was() -> None:
    model, teacher = a_model(), nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))
    before = {name: value.clone() for name, value in teacher.state_dict().items()}

    def loss(net: nn.Module, batch: Any) -> Tensor:
        return nn.functional.mse_loss(net(batch[0]), teacher(batch[0]).detach())

    sg.tune(model, some_batches(), loss, seconds=0.3, knobs=[])
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())


def test_what_a_variant_sets_for_the_process_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[int]] = {"threads": set(), "none": set()}

    def noting(name: str, also: Callable[[], object]) -> Callable[[Any], None]:
        def turn(setup: Any) -> None:
            also()
            step = setup.optimizer.step

            def noted(*args: Any) -> Any:
                seen[name].add(torch.get_num_threads())
                return step(*args)

            setup.optimizer.step = noted

        return turn

    monkeypatch.setattr(search, "compare", lambda lanes, *_args, **_kwargs: [[1.0] * len(lanes)] * 8)
    tuned({"threads": noting("threads", lambda: torch.set_num_threads(2)), "none": noting("none", lambda: None)})
    assert seen == {"threads": {2}, "none": {1}}


def test_a_watch_hears_nothing_of_it() -> None:
    model = a_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        sg.tune(model, some_batches(), nn.CrossEntropyLoss(), optimizer, seconds=0.3, knobs=[])
        assert watch.get_training_summary()["total_steps"] == 0


# -- knobs ---------------------------------------------------------------------------------------------------------


def bench_of(model: nn.Module, batches: Any, optimizer: Any = None, loader: Any = None) -> Bench:
    optimizer = optimizer or torch.optim.Adam(model.parameters())
    return Bench(model, nn.CrossEntropyLoss(), optimizer, batches, loader)


def test_knobs_are_those_that_the_training_has() -> None:
    images = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.LazyLinear(2))
    batch = torch.randn(4, 3, 6, 6), torch.tensor([0, 1, 0, 1])
    images(batch[0])
    names = {knob.name for knob in knobs_for(bench_of(images, [batch]))[0]}
    assert {"channels_last", "fused optimizer", "foreach optimizer", "amp", "memory_efficient"} <= names
    assert {"compilation", "full_optimization", "matmul precision medium"} <= names
    model = a_model()
    ours, missing = knobs_for(bench_of(model, some_batches(), torch.optim.LBFGS(model.parameters())))
    assert not {"channels_last", "fused optimizer"} & {knob.name for knob in ours}
    assert missing["fused optimizer"] == "LBFGS does not take it"
    assert missing["num_workers"] == "batches is no DataLoader"
    assert "no convolutions" in missing["channels_last"]


def test_a_loader_has_knobs_of_its_own() -> None:
    dataset = TensorDataset(*(torch.cat(column) for column in zip(*some_batches(), strict=True)))
    loader = DataLoader(dataset, batch_size=16, shuffle=True, collate_fn=None)
    ours, missing = knobs_for(bench_of(a_model(), some_batches(), loader=loader))
    names = {knob.name for knob in ours}
    assert "batch size 32" in names
    assert any(name.startswith("num_workers=") for name in names)
    assert "CPU" in missing["pin_memory"]
    other = rebuilt(loader, num_workers=2, persistent_workers=True)
    assert (other.dataset, other.sampler, other.collate_fn) == (loader.dataset, loader.sampler, loader.collate_fn)
    assert (other.num_workers, other.batch_size, other.drop_last) == (2, 16, False)
    assert rebuilt(other, num_workers=0).num_workers == 0


def test_a_loader_with_few_samples_is_not_walked_without_end() -> None:
    dataset = TensorDataset(*(torch.cat(column) for column in zip(*some_batches(), strict=True)))
    few = torch.utils.data.SubsetRandomSampler(range(20))
    loader = DataLoader(dataset, batch_size=16, sampler=few, drop_last=True)
    assert "only 20 samples" in knobs_for(bench_of(a_model(), some_batches(), loader=loader))[1]["batch size"]
    empty = Lane(bench_of(a_model(), some_batches(), loader=rebuilt(loader, batch_size=32)).setup(), loads=True)
    with pytest.raises(ValueError, match="no batches"):
        empty.block(1)


def test_a_knob_is_chosen_by_any_of_its_kinds(paced: list[list[float]]) -> None:
    assert tuned(knobs=["memory"]).outcome("memory_efficient").verdict == "no faster"


def test_variants_with_a_word_in_common_are_combined(paced: list[list[float]]) -> None:
    assert tuned({"one way": at_pace(2.0), "other way": at_pace(1.5)}).recommended.name == "one way + other way"


def test_the_code_builds_the_optimizer_over_what_it_trains() -> None:
    model = a_model()
    model[0].requires_grad_(False)
    trained = [one for one in model.parameters() if one.requires_grad]
    knobs, _ = knobs_for(bench_of(model, some_batches(), torch.optim.Adam(trained)))
    line = next(knob for knob in knobs if knob.name == "fused optimizer").lines["optimizer"][0]
    told: dict[str, Any] = {"torch": torch, "model": model}
    exec(line, told)
    assert [id(one) for one in told["optimizer"].param_groups[0]["params"]] == [id(one) for one in trained]
    knobs, _ = knobs_for(bench_of(model, some_batches(), torch.optim.Adam(model[5].parameters())))
    line = next(knob for knob in knobs if knob.name == "fused optimizer").lines["optimizer"][0]
    assert line == "optimizer = torch.optim.Adam(parameters, fused=True)", "not all of the model's"


def test_another_batch_size_comes_with_its_caveat(paced: list[list[float]]) -> None:
    dataset = TensorDataset(*(torch.cat(column) for column in zip(*some_batches(), strict=True)))
    result = tuned(batches=DataLoader(dataset, batch_size=16), knobs=["batch"])
    outcome = result.outcome("batch size 32")
    assert "another training" in outcome.note
    assert outcome.verdict == "changes learning", "half as many steps at this learning rate"
    assert result.recommended is None


@pytest.mark.parametrize("way", ["fused optimizer", "foreach optimizer"])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_other_ways_of_an_optimizer_learn_the_same(way: str, kind: Any, paced: list[list[float]]) -> None:
    model = a_model()
    optimizer = kind(model.parameters(), lr=0.01, weight_decay=0.1)
    for x, y in some_batches(2):  # it has a state already
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    result = sg.tune(model, some_batches(), nn.CrossEntropyLoss(), optimizer, seconds=15.0, knobs=[way])
    outcome = result.outcome(way)
    assert outcome.parity.verdict == "the same", outcome.error
    options = f"lr=0.01, weight_decay=0.1, {way.partition(' ')[0]}=True"
    assert outcome.code == f"optimizer = torch.optim.{kind.__name__}(model.parameters(), {options})"


def test_lbfgs_and_models_with_a_loss_of_their_own_are_tuned_too(paced: list[list[float]]) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = a_model()

        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return {"loss": nn.functional.cross_entropy(self.layers(x), labels)}

    model = Own()
    batches = [{"x": x, "labels": y} for x, y in some_batches()]
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
    result = sg.tune(model, batches, None, optimizer, seconds=15.0, knobs=["amp", "memory_efficient"])
    assert [one.parity.ok for one in result.outcomes[1:]] == [True, True], str(result)


# -- what is shown -------------------------------------------------------------------------------------------------


def test_the_result_is_json_a_table_code_and_a_page(paced: list[list[float]], tmp_path: Path) -> None:
    result = tuned({"fast": at_pace(2.0), "bad": at_pace(3.0, skips_a_layer)}, ["amp", "threads", "memory_efficient"])
    told = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert told["recommended"].startswith("fast")
    rows = {row["name"]: row for row in told["variants"]}
    assert {"speedup_factor", "memory_savings", "amp_enabled", "execution_time", "loss_parity"} <= rows["amp"].keys()
    assert (rows["amp"]["amp_enabled"], rows["fast"]["amp_enabled"]) == (True, False)
    assert rows["amp"]["parity"]["verdict"] == "bfloat16's rounding"
    assert rows["bad"]["loss_parity"] is False
    assert rows["memory_efficient"]["memory_savings"] >= 0
    for row in told["variants"]:
        compile(row["code"], row["name"], "exec")
    text = str(result)
    assert all(row["name"].split()[0] in text for row in told["variants"])
    assert result._repr_html_().startswith("<pre>")
    page = tmp_path / "tuned.html"
    result.plot(page)
    written = page.read_text(encoding="utf-8")
    assert "plotly" in written
    assert "fast" in written
    assert "https://cdn.plot.ly" not in written.partition("<script")[0]
    with pytest.raises(KeyError, match="no variant is called 'x'"):
        result.outcome("x")


def test_no_name_is_cut_on_a_narrow_terminal() -> None:
    speed = Interval(1.0, 0.9, 1.1, 8)
    named = Outcome("memory_efficient", "no faster", speedup=speed, memory=23_300, memory_savings=0.45)
    parity = Parity(True, "within the seeds' spread", 0.0, 0.0, 0.0, 0.0, 0.0, {})
    unsure = Outcome("amp", "too few measurements", speedup=speed, memory=23_300, memory_savings=0.45, parity=parity)
    out = StringIO()
    Console(file=out, width=80).print(Tuning([Outcome("baseline", ""), named, unsure]))
    assert "memory_efficient " in out.getvalue()


def test_lines_to_paste_stand_in_their_order() -> None:
    knobs = [knob for knob in knobs_for(bench_of(a_model(), some_batches()))[0] if knob.name in _PASTED]
    from seismograd.optimize.tuning.knobs import Variant

    code = Variant(tuple(reversed(knobs))).code.splitlines()
    assert code[-3:] == [
        "# in the loop:",
        'with torch.autocast("cpu", dtype=torch.bfloat16):',
        "    loss = loss_fn(model(x), y)",
    ]
    assert code[0] == 'torch.set_float32_matmul_precision("medium")'
    assert code[1] == "optimizer = torch.optim.Adam(model.parameters(), fused=True)"


_PASTED = ("amp", "fused optimizer", "matmul precision medium")


# -- measuring -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "low", "high", "sure"), [(3, 1, 3, False), (6, 1, 6, True), (12, 3, 10, True), (20, 6, 15, True)]
)
def test_an_interval_is_made_of_order_statistics(count: int, low: float, high: float, sure: bool) -> None:
    interval = Interval.of([float(value) for value in random.Random(0).sample(range(1, count + 1), count)])
    assert (interval.low, interval.high, interval.sure) == (low, high, sure)
    assert interval.middle == (count + 1) / 2


def test_sides_take_turns_and_go_through_the_same_batches() -> None:
    seen: list[tuple[str, int]] = []
    bench = bench_of(a_model(), some_batches(3))
    lanes = []
    for name in ("base", "other"):
        setup = bench.setup()
        step = setup.step

        def noted(batch: Any, name: str = name, step: Any = step, setup: Any = setup) -> Any:
            seen.append((name, next(at for at, one in enumerate(setup.batches) if one is batch)))
            return step(batch)

        setup.step = noted  # type: ignore[method-assign]
        lane = Lane(setup)
        lane.seconds, lane.block_steps = 1.0, 2
        lanes.append(lane)
    rounds = compare(lanes, 0.0, most=4)
    assert len(rounds) == 1, "the time was up, and there is none for more"
    assert seen == [("base", 0), ("base", 1), ("other", 0), ("other", 1)]
    seen.clear()
    assert len(compare(lanes, 0.0, float("inf"), most=3)) == 3
    assert [name for name, at in seen if at == 0] == ["base", "other", "other", "base", "base", "other"]


def test_a_knob_of_the_users_may_say_that_it_is_coarse(paced: list[list[float]]) -> None:
    class Narrow(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, inputs: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                outputs: Tensor = self.model(inputs)
            return outputs

    def hidden(setup: Any) -> None:
        setup.model = Narrow(setup.model)

    def shown(setup: Any) -> None:
        setup.autocast = torch.bfloat16

    own = [Knob("plain", "a", hidden), Knob("said", "b", hidden, dtype=torch.bfloat16), Knob("shown", "c", shown)]
    result = tuned(own)
    assert result.outcome("plain").verdict == "changes learning"
    assert result.outcome("said").parity.ok
    assert result.outcome("shown").parity.ok


def test_the_types_that_a_setup_computes_in_are_known_however_they_were_set() -> None:
    model = a_model()
    setup = Setup(model, None, torch.optim.SGD(model.parameters(), lr=0.1), [], trained=model)

    def careless(_setup: Any) -> None:
        torch.set_float32_matmul_precision("medium")

    variant = Variant((Knob("careless", "a", careless),))
    assert variant.dtype(setup) is None
    assert variant.dtype(variant.turned(setup)) is torch.bfloat16, "also where this processor has no such matrices"
    setup.autocast = torch.float16
    assert variant.dtype(setup) is torch.bfloat16, "the coarser one"
    assert torch.get_float32_matmul_precision() == "highest"
