"""Which instruction of the module a name in a trace means.

Traces name an asynchronous collective by either of its halves or without them, and some name what is inside a fusion
or an async wrapper instead of the fusion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from jaxprof.hlo.op_cost import OpCost

NOT_IN_MODULE = "not in the compiled module"

_HALF = re.compile(r"-(start|update|done)(?=\.|$)")


def join_names(names: Iterable[str], ops: Sequence[OpCost]) -> dict[str, str]:
    """The instruction of ``ops`` for each name that means one; names that mean none are left out.

    The same name goes before the other half of an asynchronous pair, and that before an instruction inside a fusion.
    """
    same = {op.op for op in ops}
    halves = _unambiguous((_HALF.sub("", op.op), op.op) for op in ops if not op.opcode.endswith("-done"))
    inside = _unambiguous((name, op.op) for op in ops for name in op.contains)
    joined: dict[str, str] = {}
    for name in names:
        if name in same:
            joined[name] = name
        elif (found := halves.get(_HALF.sub("", name)) or inside.get(name)) is not None:
            joined[name] = found
    return joined


def _unambiguous(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str | None] = {}
    for name, op in pairs:
        found[name] = op if found.get(name, op) == op else None
    return {name: op for name, op in found.items() if op is not None}
