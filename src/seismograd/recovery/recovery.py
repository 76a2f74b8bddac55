"""Acts on what a run's findings ask for: decides once for each update, and says what it did."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from seismograd.detectors.wording import number
from seismograd.probes.watched import Watched
from seismograd.records import Finding, Reading, Severity
from seismograd.recovery.acting import (
    HeldBack,
    clip,
    lower_rates,
    norm_of,
    put_buffers_back,
    rates_of,
    schedulers_of,
    squares_of,
)
from seismograd.recovery.agreement import Agreement, NoAgreementError
from seismograd.recovery.course import Course, is_finite
from seismograd.recovery.policies import STRENGTH, Call, Clip, LowerLr, Plan, Policy, Rollback, Skip, policy_of, told
from seismograd.recovery.progress import Climb
from seismograd.recovery.state import Shelf, State, Trained
from seismograd.recovery.telling import Due, Teller
from seismograd.recovery.trouble import TrainingStopped, Trouble, chain_of
from seismograd.recovery.views import View, Views
from seismograd.replay.recorder import Call as Recorded
from seismograd.stats.tensors import all_finite, bad_counts, there


class Recovery:
    """One run's policies at work. While nothing is wrong it touches nothing, and only copies what it may go back to."""

    def __init__(
        self,
        plan: Plan,
        *,
        teller: Teller,
        fail: Callable[[str, Exception], None],
        schedulers: Sequence[Any] = (),
        scalers: Sequence[Any] = (),
    ) -> None:
        self.plan = plan
        self._teller, self._fail = teller, fail
        self._climbs = [Climb(ladder) for ladder in plan.ladders]
        self._due: dict[int | None, Due] = {}  # by the optimizer's number; None: whichever comes next
        self._decided: Due | None = None
        self._held: dict[int, HeldBack] = {}  # by the optimizer's id
        self._scaler_skips = self._in_closure = self._late = False
        self._skipped_at = -1
        self._skipped_backwards: tuple[int, ...] = ()
        self._schedulers: list[Any] = list(schedulers)
        self._searched = False
        self._scalers: list[Any] = [one for one in scalers if hasattr(one, "state_dict")]
        self._shelf = _shelf_for(plan)
        self._course = Course(0 if self._shelf is None else self._shelf.settle)
        self._rollbacks = 0
        self._rolled_back: State | None = None
        self._lowered: dict[int, float] = {}  # by how much, for each optimizer
        self._agreement: Agreement | None = None
        self._alone: bool | None = None
        self._world = 1
        self._over = False
        """Whether the ranks cannot decide together any more: one that went on by itself would part from the others."""
        self._watched: Watched | None = None
        self._calls: Callable[[], Sequence[Recorded]] = tuple

    # -- what the loop tells -----------------------------------------------------------------------------------------

    def follow(self, watched: Watched, *, calls: Callable[[], Sequence[Recorded]], late: bool = False) -> None:
        """What is trained, the recorded calls of the present step, and whether steps are judged after their update."""
        self._watched, self._calls, self._late = watched, calls, late

    @property
    def _models(self) -> Mapping[str, nn.Module]:
        return {} if self._watched is None else self._watched.models

    @property
    def _optimizers(self) -> list[Optimizer]:
        return [] if self._watched is None else [o for o in self._watched.optimizers if isinstance(o, Optimizer)]

    def scheduled(self, scheduler: Any) -> None:
        """A scheduler steps: it is ours if its optimizer is."""
        optimizer = getattr(scheduler, "optimizer", None)
        if any(optimizer is one for one in self._optimizers) and not any(scheduler is one for one in self._schedulers):
            self._schedulers.append(scheduler)

    def scaled_by(self, scaler: Any) -> None:
        if hasattr(scaler, "state_dict") and not any(scaler is known for known in self._scalers):
            self._scalers.append(scaler)

    def judged(self, reading: Reading, seen: Sequence[Finding], suspected: Sequence[str]) -> None:
        """A reading was judged: what is to be done about it is decided here, and done at the update."""
        if "recovery" in reading.facts or "not-stepped" in reading.marks:
            return
        scalars, step = reading.plain().scalars, reading.step
        is_step = "grad/norm" in scalars or "nonfinite" in reading.tensors
        if is_step:  # what came from other ranks meanwhile says nothing about this rank's scaler
            self._scaler_skips = "amp-skipped" in reading.marks
        owner = (reading.series or 0) if is_step else None
        suspected = () if self._late else suspected  # its update has taken place: it will be known when it is over
        match = self._match(chain_of(reading, seen), suspected, {f.id for f in seen if f.last_step < step})
        if match is None:
            if owner is not None:
                self._let_go_on(owner, step, scalars.get("grad/norm"), scalars.get("loss"))
            return
        climb, name, ids, certain = match
        fresh = owner is not None and not self._late and (self._course.was_well(owner) or "nonfinite-input" in ids)
        self._went_wrong(owner, step)
        climb.settle(step)
        trouble = Trouble(
            step,
            name,
            ids,
            tuple(finding for finding in seen if finding.id in ids),
            not certain,
            scalars.get("loss"),
            scalars.get("grad/norm"),
            models=self._models,
            optimizers=self._optimizers,
        )
        if (trouble.is_finite and climb.rests(step)) or not (certain or climb.may_suspect(step)):
            return
        self._due[owner] = Due(climb, trouble, reading if is_step else None, owner, fresh)

    def _match(
        self, chain: Mapping[str, Severity | None], suspected: Sequence[str], past: Set[str]
    ) -> tuple[Climb, str, tuple[str, ...], bool] | None:
        """Who acts on what, what else there is, and whether it is certain. What began it has the first word.

        What is past (a spike that is known now that it is over) is too late for a policy that prevents; that acts on
        what is suspected.
        """
        for name, severity in chain.items():
            climb = self._climb_for(name, severity)
            if climb is not None and not (name in past and climb.policy.prevents):
                return climb, name, tuple(chain), True
        for name in suspected:
            climb = self._climb_for(name, None)
            if climb is not None and climb.policy.prevents:
                return climb, name, tuple(suspected), False
        return None

    def _climb_for(self, name: str, severity: Severity | None) -> Climb | None:
        ladder = self.plan.ladder_for(name, severity)
        return None if ladder is None else self._climbs[self.plan.ladders.index(ladder)]

    def _let_go_on(self, owner: int, step: int, norm: float | None, loss: float | None) -> None:
        """No policy is for what was seen at this step: it is well, unless it is not finite."""
        if is_finite(norm, loss):
            self._course.went_well(owner, step, norm, loss)
        elif not self._scaler_skips:
            self._went_wrong(owner, step)

    def _went_wrong(self, owner: int | None, step: int) -> None:
        self._course.went_wrong(owner, step)
        if self._shelf is not None:
            self._shelf.waits(step)

    # -- at an update ------------------------------------------------------------------------------------------------

    def keep_state(self, step: int) -> None:
        """The optimizer is about to step: a state is kept, if it is time for one and all is well.

        On several ranks it is kept where they decide, on all of them or on none.
        """
        if self._is_alone() and self._may_keep(step):
            self._keep(step)

    def _may_keep(self, step: int) -> bool:
        shelf = self._shelf
        return shelf is not None and not self._due and self._course.onset is None and shelf.is_due(step)

    def _keep(self, step: int) -> None:
        shelf = self._shelf
        if shelf is None:
            return
        self._search_schedulers()
        trained = Trained(self._models.values(), self._optimizers, self._schedulers, self._scalers)
        try:
            shelf.put(State(trained, step, self._course.loss, shelf.folder, lowered=self._lowered))
        except Exception as error:
            shelf.waits(step + shelf.every)
            self._fail("keeping a good state", error)

    def _search_schedulers(self) -> None:
        """Those that have not stepped yet, a whole epoch long maybe: they count, too."""
        if not self._searched:
            self._searched = True
            for scheduler in schedulers_of(self._optimizers):
                self.scheduled(scheduler)

    def cannot_act(self) -> None:
        """Gradients were used by a step that nobody hears of."""
        self._due.clear()
        why = "the optimizer is none of torch's, or steps inside backward: its updates cannot be held back"
        self._fail("recovery", RuntimeError(why))

    def decide(self, owner: int, optimizer: Optimizer, step: int, backwards: Sequence[int]) -> None:
        """The gradients are complete, and nothing has been done to them. `TrainingStopped` may come out.

        A scaler that will skip the step by itself has to find them: then all is done here.
        """
        if tuple(backwards) == self._skipped_backwards:  # an optimizer inside another one, which is held back
            self.give_back()
        self._held.clear()  # a step that ended in an error left them, and their gradients are of long ago
        self._decided = None
        if self._over:
            self._due.clear()
            return
        due = self._due.pop(owner, None) or self._due.pop(None, None)
        if due is not None and due.climb.escalates(step):
            self._teller.escalated(due)
        if not self._is_alone():
            due = self._agreed(due, step)
        if due is not None:
            due.trouble = replace(due.trouble, optimizer=optimizer)
            self._decided = due
            if self._scaler_skips:
                self.before_update(optimizer, step, backwards)

    def before_update(
        self, optimizer: Optimizer, step: int, backwards: Sequence[int], *, in_closure: bool = False
    ) -> None:
        """The optimizer is about to use its gradients, which a scaler has unscaled by now."""
        self._in_closure = in_closure
        due, self._decided = self._decided, None
        if due is not None:
            self._perform(due, optimizer, step)
            if self._skipped_at == step and backwards:
                self._skipped_backwards = tuple(backwards)
        elif backwards and tuple(backwards) == self._skipped_backwards:
            self._hold_back(optimizer)  # another optimizer's half of the same bad gradient

    def has_just_skipped(self, step: int) -> bool:
        """Whether gradients of this step, or of the one before it, were left over by a skipped update."""
        return 0 <= step - self._skipped_at <= 1

    def stand_in(self, optimizer: Optimizer) -> Optimizer | None:
        """What steps in its place; `None` where it may step itself."""
        held = self._held.get(id(optimizer))
        return None if held is None else held.stand_in

    @property
    def holds_back(self) -> bool:
        """Whether an update is being suppressed."""
        return bool(self._held)

    def give_back(self, optimizer: Optimizer | None = None) -> None:
        """Its step is over: gradients that were held back lie where they did. Those of all without an optimizer."""
        for one in list(self._held) if optimizer is None else [id(optimizer)]:
            if (held := self._held.pop(one, None)) is not None:
                held.give_back()

    def close(self) -> None:
        self.give_back()
        self._due.clear()
        self._schedulers.clear()
        self._scalers.clear()
        if self._agreement is not None:
            self._agreement.leave()
        self._watched, self._calls, self._agreement = None, tuple, None
        self._decided = self._rolled_back = None
        if self._shelf is not None:
            self._shelf.close()

    # -- the policies ------------------------------------------------------------------------------------------------

    def _perform(self, due: Due, optimizer: Optimizer, step: int) -> None:
        views = self._views(due, optimizer, step)
        policy = None if views is None else views.policy
        if views is None:
            return
        if policy is None:
            if isinstance(due.climb.policy, Call) and due.trouble.ids:
                self._teller.asked(due.trouble, _name_of(due.climb.policy))
            return
        rests = isinstance(due.climb.policy, LowerLr) and policy.name == "skip"
        spares = isinstance(policy, Rollback) and views.spares
        due.climb.act(step, suspected=views.suspected, protects=rests or spares or policy.name == "continue")
        if policy.name not in ("continue", "stop"):
            due.kept = self._teller.kept(due)
        if policy.name == "continue":
            self._teller.done(policy.name, due, step, "the training went on")
        elif policy.name == "stop":
            self._teller.done(policy.name, due, step, "the training was stopped")
            why = ", ".join(due.trouble.ids) or "another rank found something"
            raise TrainingStopped(f"seismograd: stopped at step {step}, before its update: {why}")
        elif isinstance(policy, Clip):
            self._clip(policy, due, optimizer, step, views)
        elif isinstance(policy, LowerLr):
            self._lower(policy, due, optimizer, step, views)
        elif spares:
            self._hold(optimizer, step)
            text = "the training went back to before this step, of which nothing had reached the weights"
            self._teller.done("rollback", due, step, text, after={"step": step, "loss": self._course.loss})
        elif isinstance(policy, Rollback):
            self._roll_back(policy, due, optimizer, step, views)
        else:
            self._skip(due, optimizer, step)

    def _views(self, due: Due, optimizer: Optimizer, step: int) -> Views | None:
        """What this rank knows of what is to be done, and the others; `None` where they cannot be asked."""
        policy: Policy | None = due.climb.policy
        if isinstance(policy, LowerLr) and due.climb.rests(step):
            policy = Skip()
        if isinstance(policy, Call):
            policy = self._asked(policy, due.trouble)
        norm, shelf = norm_of(optimizer), self._shelf
        trouble, goes_back = due.trouble, isinstance(policy, Rollback) or isinstance(due.climb.policy, Call)
        looks = goes_back and not trouble.suspected and (due.is_fresh or not trouble.ids)
        mine = View(
            policy=None if policy is None else told(policy),
            knows=bool(trouble.ids),
            suspected=trouble.suspected,
            fresh=due.is_fresh,
            sound=not looks or self._is_sound(),
            finite=trouble.is_finite and math.isfinite(norm),
            squares=norm * norm if self._is_alone() else squares_of(optimizer, self._world),
            norm=norm,
            usual=self._course.usual_norm(due.owner or 0),
            states=[] if shelf is None else [state.step for state in shelf.states],
        )
        everyone = self._shared("view", mine.told())
        return None if everyone is None else Views(everyone)

    def _skip(self, due: Due, optimizer: Optimizer, step: int, why: str = "") -> None:
        self._hold(optimizer, step)
        self._teller.done(
            "skip", due, step, f"the update was skipped{why}", after={"update": "none", "gradients": "left"}
        )

    def _hold(self, optimizer: Optimizer, step: int) -> None:
        """Suppresses the update, and undoes what the step's forward passes did to buffers."""
        put_buffers_back(self._calls())
        self._suppress(optimizer, step)

    def _suppress(self, optimizer: Optimizer, step: int) -> None:
        if not self._scaler_skips:
            self._hold_back(optimizer)
        self._skipped_at = self._teller.skipped_at = step

    def _hold_back(self, optimizer: Optimizer) -> None:
        if id(optimizer) not in self._held:
            self._held[id(optimizer)] = HeldBack(optimizer, in_closure=self._in_closure)

    def _clip(self, policy: Clip, due: Due, optimizer: Optimizer, step: int, views: Views) -> None:
        norm, limit = views.norm, policy.norm
        if limit is None and (usual := views.usual_norm) is not None:
            limit = 2.0 * usual
        if limit is None or not math.isfinite(norm):
            self._skip(due, optimizer, step)
            return
        now = clip(optimizer, norm, limit)
        text = f"the gradient was clipped from {number(norm)} to {number(now)}"
        if now == norm:
            text = f"the gradient, clipped to {number(norm)} by the loop itself, was left as it is"
        self._teller.done(policy.name, due, step, text, before={"clipped_from": norm}, after={"gradient_norm": now})

    def _lower(self, policy: LowerLr, due: Due, optimizer: Optimizer, step: int, views: Views) -> None:
        self._search_schedulers()
        rates = rates_of([optimizer])
        lower_rates([optimizer], self._schedulers, policy.factor)
        self._lowered[id(optimizer)] = self._lowered.get(id(optimizer), 1.0) * policy.factor
        now = rates_of([optimizer])
        text = f"the learning rate was lowered from {number(max(rates))} to {number(max(now))}"
        if not views.is_finite:
            self._hold(optimizer, step)
            text += ", and the update was skipped"
        self._teller.done(policy.name, due, step, text, before={"lr": rates}, after={"lr": now})

    def _roll_back(self, policy: Rollback, due: Due, optimizer: Optimizer, step: int, views: Views) -> None:
        shelf, onset = self._shelf, step if self._course.onset is None else self._course.onset
        state = shelf.good(onset, views.states) if shelf is not None else None
        if shelf is None or state is None:
            self._skip(due, optimizer, step, ", since no state is kept to go back to")
            return
        again = state is self._rolled_back
        if again:
            shelf.drop(state)
            state = shelf.good(onset, views.states) or state
        optimizers = self._optimizers or [optimizer]
        before = rates_of(optimizers)
        try:
            state.restore(randomness=not again)  # the same numbers once more would bring the same batches
        except Exception as error:
            self._fail("going back to a good state", error)
            self._skip(due, optimizer, step, ", since the good state could not be restored")
            return
        shelf.drop_after(state)
        for one in optimizers:
            lowered = self._lowered.get(id(one), 1.0) * (policy.factor if self._rollbacks else 1.0)
            self._lowered[id(one)] = lowered
            lower_rates([one], self._schedulers, lowered / state.lowered.get(id(one), 1.0))
        self._suppress(optimizer, step)
        self._rollbacks += 1
        self._rolled_back = state
        self._course.begins_anew()
        shelf.waits(step)
        now = rates_of(optimizers)
        text = f"the training went back to how it was before step {state.step}"
        if max(now) < max(before):
            text += f", and the learning rate from {number(max(before))} to {number(max(now))}"
        after = {"step": state.step, "loss": state.loss, "lr": now}
        self._teller.done(policy.name, due, step, text, before={"lr": before}, after=after)

    def _is_sound(self) -> bool:
        """Whether all parameters and buffers are finite, without what this step wrote into buffers."""
        put_buffers_back(self._calls())
        buffers = [one for model in self._models.values() for one in model.buffers()]  # an infinite one is meant
        return (
            self._watched is not None
            and all_finite(self._watched.roster.parameters)
            and not any(bad_counts(one)[0] for one in buffers if there(one))
        )

    def _asked(self, policy: Call, trouble: Trouble) -> Policy | None:
        """What the user's function wants to be done."""
        name = _name_of(policy)
        try:
            answer = policy.function(trouble)
            chosen = None if answer is None else policy_of(answer)
            if isinstance(chosen, Call):
                raise TypeError(f"{name} returned a function: return a policy, its name, or None")
        except Exception as error:
            self._fail(f"the recovery by {name}", error)
            return None
        return chosen

    # -- several ranks -----------------------------------------------------------------------------------------------

    def _is_alone(self) -> bool:
        if self._alone is None:
            self._alone = not Agreement.is_needed()
        return self._alone

    def _shared(self, what: str, mine: Any) -> list[Any] | None:
        """What every rank tells at this point. If that cannot be known any more, the recovery is over, on all ranks."""
        if self._is_alone():
            return [mine]
        if self._agreement is None:
            self._agreement = Agreement()
        try:
            everyone = self._agreement.share([what, mine])
            if any(each != what for each, _ in everyone):
                raise NoAgreementError("the ranks are at different points of their steps")
        except NoAgreementError as error:
            self._over = True
            self._fail("the agreement of the ranks", error)
            return None
        self._world = len(everyone)
        return [told for _, told in everyone]

    def _agreed(self, due: Due | None, step: int) -> Due | None:
        """What all ranks do: what the one does that has to do most."""
        mine = None if due is None else [due.climb.policy.name, self._climbs.index(due.climb), due.climb.rung]
        onset = self._course.onset
        keeps = due is None and self._may_keep(step)
        everyone = self._shared("wish", [mine, step if onset is None else onset, keeps, self._scaler_skips])
        if everyone is None:
            return None
        wishes, onsets, kept, skips = (list(each) for each in zip(*everyone, strict=True))
        wishes = [wish for wish in wishes if wish is not None]
        if not wishes:
            if all(kept):
                self._keep(step)
            return None
        self._scaler_skips = any(skips)
        name, ladder, rung = max(wishes, key=lambda wish: (STRENGTH.index(wish[0]), *wish[1:]))
        self._course.onset = min(onsets)
        climb = self._climbs[ladder]
        climb.rung = rung
        if due is None:
            return Due(climb, Trouble(step), None)
        return due if mine == [name, ladder, rung] else replace(due, climb=climb)


def _name_of(policy: Call) -> str:
    """What the user's function is called."""
    return getattr(policy.function, "__name__", type(policy.function).__name__)


def _shelf_for(plan: Plan) -> Shelf | None:
    """For all rollbacks of a plan together; `None` if there are none."""
    wanted = [policy for policy in plan.policies if isinstance(policy, Rollback)]
    if not wanted:
        return None
    folder = next((Path(one.folder) for one in wanted if one.folder is not None), None)
    return Shelf(
        every=min(one.every for one in wanted),
        keep=max(one.keep for one in wanted),
        settle=max(one.settle for one in wanted),
        folder=folder,
    )
