"""`rank-hang`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.amounts import duration
from seismograd.detectors.ranks.facts import LISTED, amount, are, blamed, by_rank, capital, count, short, who
from seismograd.records import Finding, Reading, Severity, Where

_FRAMES = 8
_GROUPS = 6
"""Groups of ranks that a message describes."""
_LIBRARY = ("site-packages", "dist-packages", "/lib/python", "/torch/", "<frozen", "<string>")


@dataclass(frozen=True)
class RankHang:
    """The training stands still: ranks wait for one that does not come.

    Why it matters
    --------------
    A collective waits for all ranks. If one has left its loop, died, or is in another collective, the others wait until
    the timeout (half an hour with gloo, ten minutes with NCCL), and the error that then comes names the ranks that
    waited, not the one they waited for.

    How it is judged
    ----------------
    No rank has made a step for longer than a limit that grows with the usual time of a step. Each rank then says where
    it stands, from a thread of its own: its last step and phase, the collective it is in, and its stack. A rank that
    answers no more is stopped or dead; one that has left its loop is told of as that. If the ranks wait in different
    collectives, those that are fewer, or furthest behind, are to blame. If some wait, and the others are evaluating,
    saving or logging, it is a warning, and critical once it has lasted `patience` times the limit. A rank that works on
    alone when the others have ended, and waits for nobody, is not told of.

    What to try
    -----------
    As the story is: as many batches on each rank, or `with model.join():`; the log of the rank that died; no collective
    inside a condition that differs between ranks. `TORCH_DISTRIBUTED_DEBUG=DETAIL` makes torch compare the collectives
    of all ranks.

    An example
    ----------

        for x, y in loader:                     # 10 batches on rank 0, 9 on rank 1
            loss_fn(model(x), y).backward()     # rank 0 waits here at its tenth, for ever
    """

    id: ClassVar[str] = "rank-hang"
    needs: ClassVar[tuple[str, ...]] = ("facts/hang",)
    follows: ClassVar[tuple[str, ...]] = ("rank-uneven-input", "unused-parameter", "rank-desync", "rank-straggler")

    patience: float = 5.0

    def start(self) -> _Checker:
        return _Checker(self)


@dataclass(frozen=True)
class _Story:
    cause: str
    guilty: tuple[int, ...]
    text: str
    advice: tuple[str, ...]
    stuck: bool = True
    """Whether it cannot end well."""


class _Checker:
    __slots__ = ("_detector", "_rank", "_seen", "_step")

    def __init__(self, detector: RankHang) -> None:
        self._detector = detector
        self._step, self._rank, self._seen = -1, 0, ""

    def check(self, reading: Reading) -> Finding | None:
        facts, limits = reading.facts["hang"], self._detector
        seconds, limit = amount(facts.get("seconds")), amount(facts.get("limit"))
        ranks = {rank: each for rank, each in by_rank(facts.get("ranks")).items() if isinstance(each, Mapping)}
        if seconds is None or not ranks or (limit is not None and seconds < limit):
            return None
        if _is_over(ranks):
            return None
        step = max(0, count(facts.get("step"), reading.step))
        story = _story(ranks)
        if step != self._step:
            self._step, self._rank, self._seen = step, (story.guilty or (min(ranks),))[0], story.cause
        revision = int(seconds / limit) if limit else 1  # what is known later is told anew
        listed = _most_telling(ranks, story.guilty)
        evidence: dict[str, Any] = {
            "cause": story.cause,
            "culprits": list(story.guilty[:LISTED]),
            "seconds": seconds,
            "limit": limit if limit is not None else 0.0,
            "hung_step": step,
            "world": count(facts.get("world"), len(ranks)),
            "standing": {str(rank): _standing(each) for rank, each in listed},
            "lines": {f"rank {rank}": _brief(each) for rank, each in listed},
            "revision": min(revision, 1_000_000) if story.cause == self._seen else 1_000_000,
        }
        usual = amount(facts.get("usual"))
        message = f"No step has been made for {duration(seconds)}"
        if usual:
            message += f" (one usually takes {duration(usual)})"
            evidence["usual_seconds"] = usual
        message += f". {_described(ranks, facts)} {story.text}."
        long = limit is not None and seconds >= limits.patience * limit
        severity = Severity.CRITICAL if story.stuck or long else Severity.WARNING
        guilty = ranks.get(story.guilty[0] if story.guilty else self._rank, {})
        return blamed(
            limits,
            reading,
            severity,
            message,
            evidence,
            advice=story.advice,
            rank=self._rank,
            where=_where(guilty),
            step=step,
        )


def _story(ranks: Mapping[int, Mapping[str, Any]]) -> _Story:
    """What has likely happened, and who is to blame."""
    for look in (_left, _dead, _absent, _at_work, _elsewhere, _behind):
        story = look(ranks)
        if story is not None:
            return story
    waits = any(each.get("collective") for each in ranks.values())
    if waits:
        return _Story(
            "same-collective",
            (),
            "All wait in the same collective: a connection between them is broken, or what they bring to it differs in"
            " shape",
            (
                "Look at the network between the hosts, and at `NCCL_DEBUG=INFO`.",
                "`TORCH_DISTRIBUTED_DEBUG=DETAIL` makes torch compare shapes and dtypes over ranks first.",
            ),
        )
    return _Story(
        "no-collective",
        (),
        "No rank is seen waiting for another: the stacks in the evidence say what each does",
        ("Look at the lines where the ranks stand: a loader, a lock, a download, a loop without end.",),
        stuck=False,
    )


def _is_over(ranks: Mapping[int, Mapping[str, Any]]) -> bool:
    """Whether the training is, and the ranks that are left have something of their own to finish."""
    left = [each for each in ranks.values() if each.get("sign") != "ended"]
    if len(left) == len(ranks):
        return False
    return all(
        each.get("sign") == "alive"
        and not each.get("collective")
        and each.get("phase") not in ("forward", "backward", "optimizer")
        for each in left
    )


def _signed(ranks: Mapping[int, Mapping[str, Any]], sign: str) -> tuple[int, ...]:
    return tuple(rank for rank, each in ranks.items() if each.get("sign") == sign)


def _left(ranks: Mapping[int, Mapping[str, Any]]) -> _Story | None:
    ended = _signed(ranks, "ended")
    if not ended or len(ended) == len(ranks):
        return None
    verb, they = are(ended, "has", "have"), are(ended, "it", "they")
    return _Story(
        "left-early",
        ended,
        f"{capital(who(ended))} {verb} left the loop, and the others wait for a step that {they} will not make: most"
        f" likely {they} had fewer batches",
        (
            "Give all ranks as many batches: `DistributedSampler(dataset, drop_last=True)` and"
            " `DataLoader(..., drop_last=True)`.",
            "Or train inside `with model.join():`, where ranks may leave early; and let no rank `break` or return by"
            " itself.",
        ),
    )


def _dead(ranks: Mapping[int, Mapping[str, Any]]) -> _Story | None:
    silent = _signed(ranks, "silent")
    if not silent:
        return None
    each = ranks[silent[0]]
    host = f" on host {short(each['host'])}" if each.get("host") else ""
    process = f" (process {each['pid']}{host})" if isinstance(each.get("pid"), int) else ""
    one = len(silent) == 1
    return _Story(
        "silent",
        silent,
        f"{capital(who(silent))} {'does' if one else 'do'} not answer any more: {'it is' if one else 'they are'}"
        " stopped or dead, or the machine is",
        (
            f"Look at rank {silent[0]}{process}: its log, `dmesg` for the kernel's out-of-memory killer, a debugger"
            " that holds it.",
            "`torchrun` ends the others when a process dies; a shorter `timeout` of `init_process_group` ends the wait"
            " for one that hangs.",
        ),
    )


def _absent(ranks: Mapping[int, Mapping[str, Any]]) -> _Story | None:
    unknown = _signed(ranks, "unknown")
    if not unknown or len(unknown) == len(ranks):
        return None
    return _Story(
        "never-heard",
        unknown,
        f"{capital(who(unknown))} {are(unknown, 'was', 'were')} never heard of: not started, or not watched",
        ("See whether all processes were launched, with the same `MASTER_ADDR`, `MASTER_PORT` and `WORLD_SIZE`.",),
    )


def _at_work(ranks: Mapping[int, Mapping[str, Any]]) -> _Story | None:
    """Some wait, and others are on their way."""
    busy = tuple(rank for rank, each in ranks.items() if not each.get("collective"))
    if not busy or len(busy) == len(ranks):
        return None
    one, phase = len(busy) == 1, str(ranks[busy[0]].get("phase"))
    doing = _DOING.get(phase, "elsewhere")
    return _Story(
        "still-working",
        busy,
        f"{capital(who(busy))} {'is' if one else 'are'} still {doing}, in no collective, while the others wait: slow,"
        " or caught there",
        (
            f"Look at the line where rank {busy[0]} stands: what it does there, the others have not to do, or have done"
            " long ago.",
            "What only one rank does (saving, evaluating, downloading) should be short, or done before the process"
            " group is made.",
        ),
        stuck=phase not in _BESIDE,
    )


_BESIDE = ("evaluation", "checkpoint", "logging")
"""What may well take long, and ends."""
_DOING = {
    "data": "loading data",
    "forward": "in its forward pass",
    "backward": "in its backward pass",
    "optimizer": "in its optimizer's step",
    "evaluation": "evaluating",
    "checkpoint": "saving a checkpoint",
    "logging": "logging",
}


def _elsewhere(ranks: Mapping[int, Mapping[str, Any]]) -> _Story | None:
    """All wait, in different collectives."""
    groups: dict[tuple[str, int | None], list[int]] = {}
    for rank, each in ranks.items():
        sequence = each.get("sequence")
        at = (str(each.get("collective")), sequence if isinstance(sequence, int) else None)
        groups.setdefault(at, []).append(rank)
    if len(groups) < 2 or not all(each.get("collective") for each in ranks.values()):
        return None
    largest = max(groups.values(), key=len)
    if 2 * len(largest) > len(ranks):
        guilty = sorted(set(ranks) - set(largest))
    else:
        known = {at: group for at, group in groups.items() if at[1] is not None}
        low = min((at[1] or 0 for at in known), default=None)
        behind = sorted(rank for at, group in known.items() if at[1] == low for rank in group)
        elsewhere = [rank for rank, each in ranks.items() if each.get("phase") != "backward"]
        if behind and len(behind) < len(ranks):
            guilty = behind
        else:  # the one that is past its loop, where the others are in theirs
            guilty = elsewhere if 0 < len(elsewhere) < len(ranks) else [max(ranks)]
    return _Story(
        "different-collectives",
        tuple(guilty),
        "They wait in different collectives, and none of them can end: the ranks took different ways through the code",
        (
            "No collective may stand inside a condition that is not the same on all ranks: `if rank == 0:`, a branch on"
            " the data, an exception that only one of them catches, a loop that ends earlier there.",
            "`TORCH_DISTRIBUTED_DEBUG=DETAIL` makes torch name the first collective that differs.",
        ),
    )


def _behind(ranks: Mapping[int, Mapping[str, Any]]) -> _Story | None:
    """Nothing is known of collectives, but some have come less far."""
    steps = {rank: each["step"] for rank, each in ranks.items() if isinstance(each.get("step"), int)}
    if len(set(steps.values())) < 2:
        return None
    low = min(steps.values())
    guilty = tuple(rank for rank, step in steps.items() if step == low)
    return _Story(
        "behind",
        guilty,
        f"{capital(who(guilty))} {are(guilty, 'is', 'are')} behind, at step {low:,}, and the others have gone on"
        f" without {are(guilty, 'it', 'them')}",
        (f"Look at the line where rank {guilty[0]} stands, and at collectives that it alone has left out or added.",),
    )


def _described(ranks: Mapping[int, Mapping[str, Any]], facts: Mapping[str, Any]) -> str:
    """Where each rank stands, those at the same place together."""
    places: dict[str, list[int]] = {}
    for rank, each in ranks.items():
        places.setdefault(_stands(each), []).append(rank)
    order = sorted(places.items(), key=lambda item: (-len(item[1]), item[1]))
    texts = [f"{who(group)} {place.format(s='' if len(group) > 1 else 's')}" for place, group in order[:_GROUPS]]
    rest = sum(len(group) for _, group in order[_GROUPS:])
    rest += max(0, count(facts.get("world")) - len(ranks))
    if rest:
        texts.append(f"{rest:,} more are not listed here")
    return capital("; ".join(texts)) + "."


def _stands(each: Mapping[str, Any]) -> str:
    step = each.get("step")
    at = f" at step {step:,}" if isinstance(step, int) and step >= 0 else ""
    sign = each.get("sign")
    if sign == "ended":
        return "ended" + (f" after step {step:,}" if at else "")
    if sign == "unknown":
        return "never told anything"
    phase = f"in {_plain(each['phase'])}" if each.get("phase") not in (None, "", "collective", "rest") else ""
    if sign == "silent":
        return "fell silent" + (f" {phase}" if phase else "") + at
    if each.get("collective"):
        sequence = each.get("sequence")
        number = f" (number {sequence:,})" if isinstance(sequence, int) else ""
        return f"wait{{s}} in {_quoted(_plain(each['collective']))}{number}" + (f", {phase}" if phase else "") + at
    return "stand{s} " + (phase or "still") + at


def _quoted(collective: str) -> str:
    """The name of a function as code, and a description as it is."""
    return collective if " " in collective else f"`{collective}`"


def _plain(text: Any) -> str:
    """A text that can be put through `format`."""
    return short(text).replace("{", "(").replace("}", ")")


def _most_telling(ranks: Mapping[int, Mapping[str, Any]], guilty: Sequence[int]) -> list[tuple[int, Mapping[str, Any]]]:
    """The guilty first, then the others, as many as are listed."""
    order = [*[rank for rank in guilty if rank in ranks], *[rank for rank in ranks if rank not in set(guilty)]]
    return [(rank, ranks[rank]) for rank in sorted(order[:LISTED])]


def _standing(each: Mapping[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for name in ("step", "phase", "sign", "collective", "sequence", "seconds", "host", "pid"):
        value = each.get(name)
        if isinstance(value, str):
            told[name] = short(value)
        elif isinstance(value, int | float):
            told[name] = value
    if frames := _frames(each)[-_FRAMES:]:
        told["stack"] = [_line(frame) for frame in frames]
    return told


def _brief(each: Mapping[str, Any]) -> str:
    """Where it stands, in one line, with the innermost line of its own code."""
    told = _stands(each).format(s="s")
    own = _where(each)
    if own.file is None:
        return told
    return f"{told}, at {own.file}:{own.line}" + (f": {own.code}" if own.code else "")


def _frames(each: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    stack = each.get("stack")
    return [frame for frame in stack if isinstance(frame, Mapping)] if isinstance(stack, list | tuple) else []


def _line(frame: Mapping[str, Any]) -> str:
    place = f"{short(frame.get('file', '?'))}:{frame.get('line', '?')}"
    text = f"{place} in {short(frame['function'])}" if frame.get("function") else place
    return f"{text}: {short(frame['code'])}" if frame.get("code") else text


def _where(each: Mapping[str, Any]) -> Where:
    """The user's own line: the innermost that is not a library's."""
    phase = short(each["phase"]) if isinstance(each.get("phase"), str) else None
    for frame in reversed(_frames(each)):
        file, line = frame.get("file"), frame.get("line")
        if isinstance(file, str) and not any(part in file for part in _LIBRARY):
            code = frame.get("code")
            return Where(
                phase=phase,
                file=short(file),
                line=line if isinstance(line, int) else None,
                code=short(code) if isinstance(code, str) else None,
            )
    return Where(phase=phase)
