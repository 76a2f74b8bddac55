"""The verdict in a paragraph: what is wrong, where it began, what to do first; and what was looked at, and what not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from seismograd.records import Finding, Severity
from seismograd.reports.page.findings import badge, headline
from seismograd.reports.page.markup import Html, joined, prose, tag
from seismograd.reports.page.material import Material
from seismograd.reports.ranks import which_ranks
from seismograd.reports.stories import Story
from seismograd.reports.words import ended_by, many, tally

_KINDS = {
    "gradient": "gradients",
    "parameter": "weights",
    "update": "updates",
    "activation": "dead and saturated units",
}
_WORST = ("crashed", "critical", "warning", "healthy", "info")
_TOLD = frozenset(("not_watched", "store_unreadable"))
"""Events that say what is missing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a person should know who reads nothing else."""

    status: str
    title: str
    sentences: Sequence[str]
    first: str = ""
    """What to do before anything else."""
    unseen: Sequence[str] = ()
    """What the verdict cannot speak of."""

    @property
    def word(self) -> str:
        """The status as a word: where nothing was seen, nothing is called healthy."""
        return "nothing seen" if self.status == "info" else self.status

    def html(self, level: int) -> Html:
        """The verdict, its title a heading of that level."""
        parts = [
            badge(self.status, self.word),
            tag(f"h{level}", prose(self.title), cls="headline"),
            tag("p", prose(" ".join(self.sentences)), cls="lead"),
        ]
        if self.first:
            parts.append(tag("p", tag("strong", "Do this first: "), prose(self.first), cls="first"))
        if self.unseen:
            items = tag("ul", *(tag("li", prose(each)) for each in self.unseen))
            summary = tag("summary", "What could not be seen")
            parts.append(tag("details", summary, items, open=self.status in ("healthy", "info")))
        return tag("section", *parts, cls=f"verdict {self.status}", aria_label="Verdict")


def verdict_of(material: Material, stories: Sequence[Story]) -> Verdict:
    """The verdict on one run."""
    status = str(material.run.get("status") or "healthy")
    grave = [each for each in stories if each.finding.severity is not Severity.INFO]
    sentences = _cut_short(material)
    if not grave:
        if status == "healthy" and not material.run.get("steps"):
            status = "info"
        sentences += _nothing(material, stories)
        return Verdict(status, _title(material, status, None), sentences, unseen=unseen(material))
    worst = grave[0]
    finding = worst.finding
    sentences += [_sentence(finding.message), _began(finding, len(material.ranks))]
    follow = list(dict.fromkeys(f"`{each.finding.id}`" for each in worst.after()))
    if follow:
        verb = "follows" if len(follow) == 1 else "follow"
        sentences.append(f"{_listed(follow)} {verb} from it.")
    if len(grave) > 1:
        more = list(dict.fromkeys(f"`{each.finding.id}`" for each in grave[1:]))
        verb = "is" if len(grave) == 2 else "are"
        sentences.append(f"Besides it there {verb} {many(len(grave) - 1, 'more finding')}: {_listed(more)}.")
    first = finding.recommendations[0] if finding.recommendations else ""
    return Verdict(status, _title(material, status, finding), sentences, first, unseen(material))


def _title(material: Material, status: str, finding: Finding | None) -> str:
    if status == "crashed":
        return "The program ended with an error"
    if finding is not None:
        return headline(finding) or f"Something is wrong since step {finding.step:,}"
    if not material.run.get("steps"):
        return "No training was seen"
    return "This run looks healthy so far" if material.state == "live" else "This run looks healthy"


def _cut_short(material: Material) -> list[str]:
    """How it ended, if it did not come to its end."""
    told = ended_by(material.run)
    if told:
        return [f"It ended after {many(material.run.get('steps') or 0, 'step')}: {told[0].rstrip('.')}."]
    if material.state == "live":
        return ["It is still going on; this is how it stood when the page was made."]
    if material.state == "lost":
        steps = many(material.run.get("steps") or 0, "step")
        return [f"It broke off after {steps} without a word: the process was killed, or the machine went away."]
    return []


def _began(finding: Finding, ranks: int) -> str:
    told = which_ranks(finding, ranks) if ranks > 1 else ""
    who = f" on {told}" if told else ""
    where = finding.where
    places = []
    if where.file:
        places.append(f"`{PurePath(where.file).name}`" + ("" if where.line is None else f", line {where.line}"))
    if where.parameter:
        places.append(f"the parameter `{where.parameter}`")
    elif where.module:
        places.append(f"the module `{where.module}`")
    if where.op:
        of = f" of the {where.phase} pass" if where.phase in ("forward", "backward") else ""
        places.append(f"the op `{where.op}`{of}")
    if places:
        return f"It began at step {finding.step:,}{who} in {', '.join(places)}."
    return f"It was first seen at step {finding.step:,}{who}."


def _nothing(material: Material, stories: Sequence[Story]) -> list[str]:
    if not material.run.get("steps"):
        return ["No backward pass was seen, so there was nothing to judge."]
    from seismograd.detectors import DEFAULT

    sentences = [f"Nothing wrong was found in {many(material.run['steps'], 'step')}."]
    seen = _looked_at(material)
    if seen:
        sentences.append(f"Looked at were {_listed(seen)}, for {len(DEFAULT)} kinds of fault.")
    if stories:
        sentences.append(f"There is {tally([each.finding for each in stories])}.")
    return sentences


def _looked_at(material: Material) -> list[str]:
    names = material.names
    seen = [word for name, word in (("loss", "the loss"), ("val_loss", "the validation loss")) if _has(names, name)]
    seen += [word for name, word in (("lr", "the learning rate"), ("grad", "the gradient norm")) if _has(names, name)]
    kinds = [word for kind, word in _KINDS.items() if kind in material.tables]
    if kinds:
        seen.append(f"{_listed(kinds)} by layer")
    seen += [word for name, word in (("time", "the time of a step"), ("memory", "memory")) if _has(names, name)]
    return seen


def unseen(material: Material) -> list[str]:
    """What was not read, or not all of it: silence means health only where there was sight."""
    told = []
    if material.stored is None:
        told.append("The run was not stored, so there are no curves and no layers on this page.")
    elif material.brief:
        told.append(f"There are many runs: `seismograd html {material.run.get('id')}` shows the curves of this one.")
    elif material.names:
        if not _has(material.names, "val_loss"):
            told.append("No validation loss was read, so overfitting could not be judged.")
        blank = [word for kind, word in _KINDS.items() if kind not in material.tables]
        if blank:
            told.append(f"There are no readings by layer of {_listed(blank)} (level {material.run.get('level')}).")
    if missing := (material.run.get("store") or {}).get("missing"):
        told.append(f"The record is not whole: {str(missing).rstrip('.')}.")
    share = (material.run.get("overhead") or {}).get("steps_read")
    if isinstance(share, (int, float)) and share < 1:
        told.append(f"{share:.0%} of the steps were read, so that the watch stayed within its budget.")
    told += [f"{each.message.rstrip('.')}." for each in material.findings if each.id == "blind-probe"]
    events = [event for event in material.report.get("events") or () if isinstance(event, Mapping)]
    told += [f"{str(event.get('message')).rstrip('.')}." for event in events if event.get("event_type") in _TOLD]
    if len(material.ranks) > 1:
        ranks = f"all {len(material.ranks)} ranks"
        told.append(f"The curves are those of rank {material.rank}; findings are those of {ranks}.")
    return list(dict.fromkeys(told))


def _has(names: Sequence[str], wanted: str) -> bool:
    return any(name == wanted or name.startswith(f"{wanted}/") for name in names)


def _listed(words: Sequence[str]) -> str:
    shown = list(words) if len(words) <= 8 else [*words[:7], f"{len(words) - 7} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def worst_of(verdicts: Iterable[Verdict]) -> str:
    """The worst status among them."""
    found = {verdict.status for verdict in verdicts}
    return next((status for status in _WORST if status in found), "healthy")


def joined_verdict(verdicts: Sequence[tuple[str, Verdict]], name: str, worst: str) -> Html:
    """Of several runs: which is how, and where on the page it is."""
    items = (
        tag(
            "li",
            badge(verdict.status, verdict.word),
            tag("a", f"Run {at}", href=f"#{anchor}"),
            ": ",
            prose(verdict.title),
        )
        for at, (anchor, verdict) in enumerate(verdicts, 1)
    )
    well = sum(verdict.status == "healthy" for _, verdict in verdicts)
    healthy = f"{well or 'none'} of the runs {'is' if well == 1 else 'are'} healthy"
    lead = f"`{name}` trained {many(len(verdicts), 'time')}; {healthy}."
    parts = (
        badge(worst),
        tag("h2", f"{many(len(verdicts), 'run')} in one process", cls="headline"),
        tag("p", prose(lead), cls="lead"),
        tag("ol", joined(items), cls="runs"),
    )
    return tag("section", *parts, cls=f"verdict {worst}", aria_label="Verdict")
