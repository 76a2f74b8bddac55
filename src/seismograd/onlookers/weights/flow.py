"""Questions to the autograd graph: who stands behind whom, what has no slope, where data enters, whose a leaf is."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from torch import Tensor, nn

from seismograd.onlookers.graph import Graph, Span

FLAT = {f"{name}Backward{number}" for name in ("Round", "Floor", "Ceil", "Trunc", "Sign") for number in (0, 1)}
"""Ops whose derivative is zero everywhere."""

VIEWS = {
    f"{name}Backward0"
    for name in ("T", "Transpose", "Permute", "View", "UnsafeView", "Expand", "Unsqueeze", "Squeeze", "ToCopy", "Slice")
}
"""What may be done to a weight before it is used."""

_DATA = ("input", "mat1", "self", "indices", "mat2")
"""What ops call the data that goes into them."""


def address(tensor: Tensor) -> tuple[int, int]:
    """Where its storage lies, and how large it is."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def has_storage(tensor: Tensor) -> bool:
    try:
        return bool(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # a tensor of no memory: fake, or of a subclass
        return False


def downstream(graph: Graph, leaves: Sequence[int], held: set[int]) -> set[int]:
    """Those of `leaves` that work on what tensors of `held` have made."""
    below: set[int] = set()
    waiting = [at for at, node in enumerate(graph.nodes) if node.leaf is not None and id(node.leaf) in held]
    while waiting:
        for user in graph.users(waiting.pop()):
            if user not in below:
                below.add(user)
                waiting.append(user)
    return {at for at in leaves if any(use in below for _, use in uses(graph, at))}


def upstream(graph: Graph, leaves: Sequence[int], held: set[int]) -> set[int]:
    """Those of `leaves` that make what tensors of `held` work on."""
    above: set[int] = set()
    waiting = [
        use
        for at, node in enumerate(graph.nodes)
        if node.leaf is not None and id(node.leaf) in held
        for _, use in uses(graph, at)
    ]
    while waiting:
        for other in graph.nodes[waiting.pop()].into:
            if other >= 0 and other not in above:
                above.add(other)
                waiting.append(other)
    return above.intersection(leaves)


def uses(graph: Graph, at: int, passed: Container[str] = VIEWS) -> list[tuple[int, int]]:
    """The ops that a leaf goes into, its own transposes and views being passed, each with the view that goes in."""
    found = []
    waiting = [at]
    while waiting:
        before = waiting.pop()
        for user in graph.users(before):
            if graph.nodes[user].kind in passed:
                waiting.append(user)
            else:
                found.append((before, user))
    return found


def past_flat(graph: Graph) -> tuple[set[int], str]:
    """The ids of leaves that are reached on a way with a slope, and the op without one that the others meet first."""
    seen = set(graph.starts)
    waiting = list(graph.starts)
    ops: dict[str, None] = {}
    while waiting:
        node = graph.nodes[waiting.pop()]
        if node.kind in FLAT:
            ops[node.name.lower()] = None
            continue
        for other in node.into:
            if other >= 0 and other not in seen:
                seen.add(other)
                waiting.append(other)
    return {id(leaf) for at in seen if (leaf := graph.nodes[at].leaf) is not None}, ", ".join(ops)


def entries(graph: Graph, known: Mapping[int, int], inputs: set[tuple[int, int]]) -> list[int]:
    """When data entered the graph without a gradient, in modules, that was not given to the model but computed."""
    found = []
    for node in graph.nodes:
        if node.leaf is not None or node.span is None:
            continue
        if -1 not in node.into and not node.name.startswith("Embedding"):  # whose indices are no input to autograd
            continue
        sources = [other for other in node.into if other >= 0]
        if not sources or not all(_is_weight(graph, other, known) for other in sources):
            continue
        weights = {address(leaf) for other in sources if (leaf := _leaf(graph, other)) is not None}
        saved = node.saved()
        given = [saved[name] for name in _DATA if name in saved]
        places = [address(tensor) for tensor in given if tensor.numel() > 1 and has_storage(tensor)]
        places = [place for place in places if place not in weights]
        if places and not any(place in inputs for place in places):
            found.append(node.number)
    return found


def _leaf(graph: Graph, at: int) -> Tensor | None:
    """The leaf that this node is, or is a view of."""
    for _ in range(4):
        node = graph.nodes[at]
        if node.leaf is not None:
            return node.leaf
        if node.kind not in VIEWS or node.into[0] < 0:
            return None
        at = node.into[0]
    return None


def _is_weight(graph: Graph, at: int, known: Mapping[int, int]) -> bool:
    leaf = _leaf(graph, at)
    return leaf is not None and id(leaf) in known


def foreign(graph: Graph, held: set[int]) -> dict[int, tuple[str, str]]:
    """Parameters of modules that others call without having them as children: by id, in which call, and their name."""
    found: dict[int, tuple[str, str]] = {}
    outer: Span | None = None
    own: set[int] = set()
    numbers: dict[str, int] = {}
    for span in graph.spans:
        if span.depth == 0:
            outer, own = span, set()
            numbers = {}
            continue
        if outer is None or not span.module.training:
            continue
        mine = [p for p in span.module.parameters() if p.requires_grad]  # of what it does not call, too
        if not mine or all(id(p) in held or id(p) in found for p in mine):
            continue
        if not own:
            own = {id(p) for p in outer.module.parameters()}
        if any(id(p) in own or id(p) in held for p in mine):
            continue
        kind = type(span.module).__name__
        owner = outer.name or type(outer.module).__name__
        path = _attribute_of(span.module, outer.module) or f"{kind} #{numbers.get(kind, 0)}"
        numbers[kind] = numbers.get(kind, 0) + 1
        for parameter in mine:
            found[id(parameter)] = (owner, path)
    return found


def attribute(leaf: Tensor, spans: Sequence[Span]) -> tuple[str, str] | None:
    """The called module that has this tensor as a plain attribute, and its name there."""
    seen: set[int] = set()
    for span in spans:
        if id(span.module) in seen:
            continue
        seen.add(id(span.module))
        name = _name_in(leaf, vars(span.module))
        if name is not None:
            owner = span.name or type(span.module).__name__
            return owner, f"{span.name}.{name}" if span.name else name
    return None


def _attribute_of(module: nn.Module, outer: nn.Module) -> str | None:
    for path, each in outer.named_modules():
        name = _name_in(module, vars(each))
        if name is not None:
            return f"{path}.{name}" if path else name
    return None


def _name_in(wanted: object, attributes: Mapping[str, object]) -> str | None:
    """`layers[2]` for what a plain list among the attributes holds."""
    for name, value in attributes.items():
        if name in ("_parameters", "_buffers", "_modules"):
            continue
        if value is wanted:
            return name
        if isinstance(value, (list, tuple)) and len(value) <= 1000:
            for at, each in enumerate(value):
                if each is wanted:
                    return f"{name}[{at}]"
        elif isinstance(value, dict) and len(value) <= 1000:
            for key, each in value.items():
                if each is wanted:
                    return f"{name}[{key!r}]"
    return None
