"""Says where a step went bad: runs its calls again under a tracer, and looks at what lies between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from seismograd.places import Spot
from seismograd.records import Origin
from seismograd.replay.glue import Edge, Glue, Node
from seismograd.replay.insight import LOSSES, Passages, heaviest, unreduced
from seismograd.replay.lines import lines_noted
from seismograd.replay.numbers import bad_places, holds_nan, is_bad, operand, plain, same, tensors_in
from seismograd.replay.recorder import Call, Step
from seismograd.replay.second_runs import CannotReplayError, Rerun, SecondRuns, known_tensors, unwrapped
from seismograd.replay.statements import Statement, names_in, statement_at, tensors_bound
from seismograd.replay.surroundings import Autocast
from seismograd.replay.tracer import Bad, Known, Place, Tracer, origin_at, storage_of
from seismograd.replay.values import Given, Values

FINITE = "a second run of the step was finite"


class Investigation:
    """One look at one recorded step, whose loss was finite or not (before it was scaled).

    `scale` is what a `GradScaler` multiplied the loss with: what overflows only because of that is no fault.
    """

    def __init__(self, step: Step, models: Mapping[str, nn.Module], *, finite_loss: bool, scale: float = 1.0) -> None:
        self._finite_loss, self._scale = finite_loss, scale
        self._models = dict(models)
        self._calls, self._dropped = list(step.calls), step.dropped
        self._glues = list(step.glues) or ([] if step.taken is None else [step.taken])
        self._runs = SecondRuns(self._models, self._glues, scale)

    # -- the search ----------------------------------------------------------------------------------------------

    def origin(self) -> Origin:
        """Where the first value that is not finite was made; without a phase if that cannot be said."""
        notes: list[str] = []
        for glue in self._suspects():
            try:
                found = self._in_forward(glue) or self._in_backward(glue)
            except CannotReplayError as why:
                notes.append(str(why))
                continue
            if found is not None:
                return self._with_micro_batch(found, glue)
        if not self._calls and not any(glue.nodes for glue in self._glues):
            notes.append("no module was called where it could be seen, so there was nothing to run again")
        elif self._dropped:
            notes.append(f"only the last {len(self._glues)} micro-batches of the step were kept, and they are finite")
        elif any(not glue.complete for glue in self._glues):
            notes.append("the graph outside of modules is too long to be looked at")
        return Origin("", note=notes[0] if notes else FINITE, sure=False)

    def of_call(self, call: Call) -> Origin:
        """Where what is bad in the outputs of one call was made, forward alone: of a model that only infers."""
        try:
            rerun = self._runs.of(call, graph=False)
        except CannotReplayError as why:
            return Origin("", note=str(why), sure=False)
        outputs = [tensor for _, tensor in rerun.outputs]
        found = self._explained(rerun, outputs, Glue(()), None)
        return found or Origin("", note="a second run of the call was finite", sure=False)

    def _suspects(self) -> list[Glue]:
        """The backward passes of the step, those with a bad loss first."""
        bad = [glue for glue in self._glues if self._is_lost(glue)]
        return bad or self._glues

    def _is_lost(self, glue: Glue) -> bool:
        return not self._finite_loss and any(is_bad(loss) for loss in glue.losses)

    def _with_micro_batch(self, origin: Origin, glue: Glue) -> Origin:
        if len(self._glues) + self._dropped < 2:
            return origin
        number, of = self._glues.index(glue) + 1 + self._dropped, len(self._glues) + self._dropped
        facts = {**origin.facts, "micro_batch": number, "micro_batches": of}
        return replace(origin, facts=facts)

    def _calls_of(self, glue: Glue) -> list[Call]:
        """The calls that this backward went through, in the order in which they were made."""
        found = [call for call in self._calls if call in glue.into]
        if not glue.complete:
            found = [call for call in self._calls if any(output.reached for output in call.outputs)]
        return found

    # -- forward -------------------------------------------------------------------------------------------------

    def _in_forward(self, glue: Glue) -> Origin | None:
        values = Values(glue) if glue.complete else None
        for call in self._calls_of(glue):
            if all(output.tensor is not None and not is_bad(output.tensor) for output in call.outputs):
                continue
            rerun = self._runs.of(call)
            origin = self._explained(rerun, [tensor for _, tensor in rerun.outputs], glue, values)
            if origin is not None:
                return origin
        if values is None or not self._is_lost(glue):
            return None
        for edge in glue.starts:
            if edge[0] == "call":
                continue
            origin = self._in_glue(glue, values, edge)
            if origin is not None:
                return origin
        return None

    def _explained(
        self, rerun: Rerun, bad: list[Tensor], glue: Glue, values: Values | None, *, meant: bool = False
    ) -> Origin | None:
        """What a traced run says about these tensors of its."""
        source, known = rerun.tracer.source_of(bad, meant=meant)
        if source is None:
            return None
        if known is None:
            assert source.birth is not None
            return self._dressed(source.birth, rerun)
        if known.kind == "argument":
            return self._of_argument(rerun, known, glue, values)
        return self._of_outsider(rerun, source, known)

    def _of_argument(self, rerun: Rerun, known: Known, glue: Glue, values: Values | None) -> Origin | None:
        """A call got something bad: from the data, or from an op in the user's loop."""
        key = storage_of(known.tensor)
        for tensor, edge in glue.into.get(rerun.call, ()):
            if values is not None and storage_of(tensor) == key:
                return self._in_glue(glue, values, edge)
        return self._of_earlier_call(rerun.call, key, glue) or self._prepared(rerun.call, known, glue)

    def _of_earlier_call(self, call: Call, key: int, glue: Glue) -> Origin | None:
        """What a call got may be the output of another one, cut off from its graph."""
        for earlier in self._calls[: self._calls.index(call)]:
            if any(output.tensor is not None and storage_of(output.tensor) == key for output in earlier.outputs):
                rerun = self._runs.of(earlier)
                return self._explained(rerun, [tensor for _, tensor in rerun.outputs], glue, None)
        return None

    def _prepared(self, call: Call, known: Known, glue: Glue) -> Origin:
        """A bad input: from the data, or from a statement of the loop that prepares them."""
        told = self._bad_input(call, known)
        statement = statement_at(call.spots)
        expression = None if statement is None else statement.expression
        if statement is None or expression is None:
            return told
        key = storage_of(known.tensor)
        for name, tensor in tensors_bound(statement.namespace, names_in(expression)).items():
            made_by = statement.before(name) if storage_of(tensor) == key else None
            made = self._evaluated(made_by, glue) if made_by is not None else None
            if made is not None and made.phase == "loss":
                where = replace(made.where, phase="input")
                return replace(made, phase="input", where=where, facts={**made.facts, **told.facts})
            if made_by is not None:
                note = f"`{name}` was last assigned at line {made_by.node.lineno}"
                return replace(told, note=note)
        return told

    def _bad_input(self, call: Call, known: Known) -> Origin:
        module = self._runs.names.get(id(unwrapped(call.module))) if call.ours else None
        return self._bad_input_at(call.spot, module, known)

    def _bad_input_at(self, spot: Spot | None, module: str | None, known: Known) -> Origin:
        value, count, index = bad_places(known.tensor)
        facts: dict[str, Any] = {"argument": known.name, **_samples(known.tensor)}
        return _told_at(
            spot,
            module,
            phase="input",
            op=None,
            value=value,
            bad=count,
            size=known.tensor.numel(),
            index=index,
            shape=tuple(known.tensor.shape),
            dtype=str(known.tensor.dtype).removeprefix("torch."),
            inputs=(operand(known.name, known.tensor),),
            facts=facts,
        )

    def _of_outsider(self, rerun: Rerun, source: Bad, known: Known) -> Origin:
        """A parameter, a buffer or some other tensor was bad before the call."""
        value, count, index = bad_places(known.tensor)
        word = {"parameter": "parameter", "buffer": "buffer"}.get(known.kind, "tensor")
        told = origin_at(
            source.place,
            phase="forward" if rerun.call.ours else "loss",
            op=source.op,
            value=value,
            bad=count,
            size=known.tensor.numel(),
            index=index,
            inputs=(operand(known.name, known.tensor, known.name if known.kind != "constant" else None),),
            note=f"the {word} {known.name} that the op reads was not finite before",
        )
        return self._dressed(told, rerun)

    def _dressed(self, origin: Origin, rerun: Rerun) -> Origin:
        """What is known of the call besides."""
        call = rerun.call
        facts, note, sure = dict(origin.facts), origin.note, origin.sure
        same_module = [one for one in self._calls if one.module is call.module]
        if len(same_module) > 1 and len(self._glues) < 2:
            facts |= {"call": same_module.index(call) + 1, "calls": len(same_module)}
        for kind, enabled, dtype in call.autocast.kinds:
            if enabled:
                facts["autocast"] = f"{kind} {str(dtype).removeprefix('torch.')}"
        if _is_compiled(call.module):
            facts["compiled"] = True
        if not rerun.reproduced:
            eager = "the eager module gave other numbers than the compiled one"
            other = "the second run gave other numbers than the first: something in it is not deterministic"
            note, sure = (eager if "compiled" in facts else other), False
        phase = origin.phase
        where = origin.where
        if phase == "forward" and (not call.ours or _is_loss(origin)):
            phase = "loss"
            where = replace(where, phase="loss")
        return replace(origin, phase=phase, where=where, facts=facts, note=note, sure=sure)

    # -- between the modules -------------------------------------------------------------------------------------

    def _in_glue(self, glue: Glue, values: Values, edge: Edge) -> Origin | None:
        """What the loop's own graph says about a bad value in it."""
        found = values.culprit(edge)
        if found is None:
            return None
        if found.edge[0] == "call":  # what is infinite there was meant, and reached the loss all the same
            rerun = self._runs.of(found.edge[1][0])
            told = self._explained(rerun, [tensor for _, tensor in rerun.outputs], glue, None, meant=True)
            if told is None or told.phase == "input":
                return told
            return replace(told, sure=False, note="this infinity was written down on purpose, but it reached the loss")
        if found.edge[0] == "leaf":
            return Origin("", note="a parameter was not finite before the step", sure=False)
        node = glue.nodes[found.edge[1]]
        given = [(one.name, one.value) for one in values.given(node) if one.value is not None]
        if found.brought is not None or not found.sure:
            evaluated = self._evaluated(statement_at(node.line.spots), glue)
            if evaluated is not None:
                return evaluated
        if found.brought is not None:
            return self._brought(node, found.brought, given)
        if node.line.twice:
            again = self._in_calls_backward(glue, self._calls)
            if again is not None:
                return again
        value = values.of(found.edge)
        assert value is not None
        known = found.sure and not node.kind.startswith("CompiledFunction")  # whose inputs are not all told
        told = _of_node(node, value, given, phase="loss", sure=known)
        if not node.line.twice:
            return told
        if node.derives is None:
            return replace(told, sure=False, note="it was made by a derivative that was taken at this line")
        names = ("grad", "self", "other")  # a derivative begins with the gradient that arrives
        inputs = tuple(replace(one, name=name) for name, one in zip(names, told.inputs, strict=False))
        where = replace(told.where, phase="backward")
        return replace(told, phase="backward", forward_op=node.derives, where=where, inputs=inputs)

    def _brought(self, node: Node, brought: Given, given: list[tuple[str, Tensor]]) -> Origin:
        """An op of the loop got something bad from outside of the graph: a target, or what was made without it."""
        assert brought.value is not None
        is_data = node.op.endswith(("_loss", "_entropy", "_div", "_logits"))
        if not is_data:
            told = _of_node(node, brought.value, given, phase="loss", sure=False)
            return replace(told, note=f"`{brought.name}` was not finite when it came, from code that keeps no graph")
        facts = {"argument": f"{brought.name} of {node.op.removeprefix('aten.')}", **_samples(brought.value)}
        told = _of_node(node, brought.value, given, phase="input")
        return replace(told, facts=facts, where=replace(told.where, op=None))

    def _evaluated(self, statement: Statement | None, glue: Glue, depth: int = 0) -> Origin | None:
        """What a statement of the loop shows that is evaluated again, if that gives what the loop got."""
        if statement is None or depth > 6 or not statement.is_safe():
            return None
        expression = statement.expression
        assert expression is not None
        variables = tensors_bound(statement.namespace, names_in(expression))
        calls = self._calls_of(glue)
        known = known_tensors(self._models.items())
        for name, tensor in variables.items():
            known.setdefault(storage_of(tensor), Known(name, "variable", tensor.detach()))
        autocast = calls[0].autocast if calls else Autocast.now()
        tracer = Tracer(self._runs.names, known, base=Investigation._evaluated.__code__)
        tracer.expects = [(call.module, call.randomness.restore) for call in calls]
        try:
            modules = [one for one in statement.namespace.values() if isinstance(one, nn.Module)]
            with self._runs.stage(tracer, autocast, modules, variables.values()), lines_noted(tracer.note_node), tracer:
                value = statement.value()
        except Exception:
            return None
        results = [tensor for _, tensor in tensors_in(value)]
        if not any(is_bad(one) for one in results):
            return None
        for name in statement.targets:
            now = statement.namespace.get(name)
            if isinstance(now, Tensor) and not any(same(now, one) for one in results):
                return None  # not what the loop got: something in it has changed since
        source, outsider = tracer.source_of(results)
        if source is None:
            return None
        if outsider is None:
            assert source.birth is not None
            where = replace(source.birth.where, phase="loss")
            return replace(source.birth, phase="loss", where=where)
        if outsider.kind != "variable":
            return None
        made_by = statement.before(outsider.name)
        deeper = self._evaluated(made_by, glue, depth + 1) if made_by is not None else None
        if deeper is not None:
            return deeper
        told = self._bad_input_at(source.place.spot, None, outsider)
        if made_by is None:
            return told
        note = f"`{outsider.name}` was last assigned at line {made_by.node.lineno}, which cannot be run again"
        return replace(told, sure=False, note=note)

    # -- backward ------------------------------------------------------------------------------------------------

    def _in_backward(self, glue: Glue) -> Origin | None:
        culprit = self._backward_culprit(glue)
        return self._node_in_backward(glue, culprit) if culprit is not None else self._in_calls_backward(glue)

    def _in_calls_backward(self, glue: Glue, calls: Sequence[Call] | None = None) -> Origin | None:
        """The calls whose output got a finite gradient and whose own gradients are not finite."""
        reason: CannotReplayError | None = None
        for call in reversed(self._calls_of(glue) if calls is None else calls):
            self._runs.recompute(call, glue)
            for turn in range(max((len(output.arrived) for output in call.outputs), default=0)):
                arrived = [self._runs.arriving(call, one, turn) for one in call.outputs if turn < len(one.arrived)]
                if any(is_bad(gradient) for gradient in arrived):
                    continue
                try:
                    rerun = self._runs.with_backward(call, turn)
                except CannotReplayError as why:
                    reason = reason or why
                    continue
                bad = [gradient for gradient in rerun.gradients if is_bad(gradient)]
                origin = self._explained(rerun, bad, glue, None) if bad else None
                if origin is not None:
                    return origin
            if any(output.reached and not output.arrived for output in call.outputs):
                reason = reason or CannotReplayError("the gradient of the model's output was too large to be kept")
        if reason is not None:
            raise reason
        return None

    def _backward_culprit(self, glue: Glue) -> Node | None:
        """The first node of the loop's own whose gradient was finite when it came, and was not when it left."""
        wrong = is_bad if self._scale == 1.0 else holds_nan  # under a scaler an overflow is no fault by itself
        passed = sorted((node for node in glue.nodes if node.order >= 0), key=lambda node: node.order)
        for node in passed:
            if any(one is not None and wrong(one) for one in node.left) and not any(
                one is not None and is_bad(one) for one in node.arrived
            ):
                return node
        return None

    def _node_in_backward(self, glue: Glue, node: Node) -> Origin:
        values = Values(glue)
        for one in values.given(node):
            if one.value is not None and is_bad(one.value) and one.edge[0] == "node":
                made = self._in_glue(glue, values, one.edge)  # forward made it, and hid it from the loss
                if made is not None:
                    where = replace(made.where, phase="backward")
                    return replace(made, phase="backward", forward_op=made.where.op, where=where)
        shown = next(one for one in node.left if one is not None and is_bad(one))
        given = values.certain(node)
        arrived = [one for one in node.arrived if one is not None]
        facts: dict[str, Any] = {}
        numbers, incoming = plain(shown), plain(arrived[0]) if arrived else None
        if numbers is not None and incoming is not None and incoming.shape == numbers.shape:
            facts["gradient_zero"] = bool((incoming[~torch.isfinite(numbers)] == 0).all())
        told = _of_node(node, shown, given, phase="backward")
        inputs = (*told.inputs, *(operand("grad", one) for one in arrived[:1]))
        return replace(told, forward_op=node.op, inputs=inputs, facts=facts)

    # -- finite trouble ------------------------------------------------------------------------------------------

    def insight(self) -> dict[str, Any]:
        """How the gradient's norm changes from module to module, and which samples carry the loss: of the newest
        backward pass. What cannot be found out is left out."""
        if not self._glues:
            return {}
        glue = self._glues[-1]
        told: dict[str, Any] = {}
        for call in self._calls_of(glue):
            if call.ours:
                told |= self._passages(call)
        losses = unreduced(glue)
        if losses is None:
            losses = self._unreduced_call(glue)
        return {**told, **(heaviest(losses) if losses is not None else {})}

    def _passages(self, call: Call) -> dict[str, Any]:
        passages = Passages(self._runs.names_with(unwrapped(call.module)))
        handle = register_module_forward_hook(passages.after_forward)
        try:
            self._runs.with_backward(call, 0, traced=False)
        except CannotReplayError:
            return {}
        finally:
            handle.remove()
        return passages.evidence()

    def _unreduced_call(self, glue: Glue) -> Tensor | None:
        """The same from a loss module that makes one number of all samples."""
        for kind, what in glue.starts:
            module = what[0].module if kind == "call" else None
            if module is None or getattr(module, "reduction", None) not in ("mean", "sum"):
                continue
            try:
                rerun = self._runs.of(what[0], traced=False, reduction="none")
            except CannotReplayError:
                return None
            return rerun.outputs[0][1] if rerun.outputs else None
        return None


def _is_compiled(module: nn.Module) -> bool:
    return any(hasattr(each, "_orig_mod") or each._compiled_call_impl is not None for each in module.modules())


def _told_at(spot: Spot | None, module: str | None, *, phase: str, op: str | None, **told: Any) -> Origin:
    return origin_at(Place(spot, None, module), phase=phase, op=op, **told)


def _of_node(
    node: Node, shown: Tensor, given: Sequence[tuple[str, Tensor]], *, phase: str, sure: bool = True
) -> Origin:
    """What is known of an op of the loop's own; `shown` is what is bad about it."""
    first, count, index = bad_places(shown)
    note = None if sure else "not everything that went into the op is known"
    if node.spot is None:
        note = "the line is not known: the op ran where lines are not noted"
    return _told_at(
        node.spot,
        None,
        phase=phase,
        op=node.op,
        value=first,
        bad=count,
        size=shown.numel(),
        index=index,
        shape=tuple(shown.shape),
        dtype=str(shown.dtype).removeprefix("torch."),
        inputs=tuple(operand(name, one) for name, one in given[:4]),
        arguments={name: one for name, one in node.scalars.items() if isinstance(one, (bool, int, float, str))},
        sure=sure and node.spot is not None,
        note=note,
    )


def _is_loss(origin: Origin) -> bool:
    """Whether a loss made it: models that are given their labels compute it in their own forward."""
    return origin.size == 1 and (origin.where.op or "").endswith(LOSSES)


def _samples(tensor: Tensor) -> dict[str, int]:
    """How many samples hold something bad, of how many."""
    if not tensor.ndim or not tensor.numel():
        return {}
    bad = (~torch.isfinite(tensor)).reshape(len(tensor), -1).any(1)
    return {"samples": int(bad.sum()), "of_samples": len(tensor)}
