"""Where an instruction comes from: scope path, part of the model, phase of the step, line of the user's code."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from jaxprof.hlo.module import Computation, Instruction, Module
from jaxprof.hlo.op_cost import Part, Phase

PARTS: dict[str, Part] = {part: part for part in get_args(Part) if part != "other"}
_FUNCTION = re.compile(r"\bp?jit\([^()]*\)")
_PLUMBING = ("dynamic_index_in_dim", "dynamic_update_index_in_dim")
"""Functions by which ``lax.scan`` hands slices to its body: they serve whoever uses or makes the slice."""
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3")
_OWN_MODELS = "/site-packages/jaxprof/models/"
_REACH = 8
"""How many instructions away to look for a neighbour that says where it comes from."""


@dataclass(frozen=True, slots=True)
class Origin:
    scope: str = ""
    part: Part = "other"
    phase: Phase = "unknown"
    source: str = ""


def words(op_name: str) -> list[str]:
    """The scopes of an op_name, outermost first; names of functions are left out, transformations stay as words."""
    return [word for word in re.split(r"[/()]", _FUNCTION.sub("jit", op_name.split(";")[0])) if word]


def part_of(op_name: str) -> Part:
    """The innermost model part among the scopes; ``attention/qkv`` means the same as ``attention.qkv``."""
    scopes = words(op_name)
    for position in range(len(scopes) - 1, -1, -1):
        for candidate in (scopes[position], ".".join(scopes[max(0, position - 1) : position + 1])):
            if candidate in PARTS:
                return PARTS[candidate]
    return "other"


def phase_of(op_name: str, step: str | None) -> Phase:
    """The phase by the transformations in an op_name; a prefill or decode step is one phase as a whole."""
    if step in ("prefill", "decode"):
        return step
    scopes = words(op_name)
    if "optimizer" in scopes:
        return "optimizer"
    if "rematted_computation" in scopes:
        return "recompute"
    return "backward" if "transpose(" in op_name else "forward"


def source_of(instruction: Instruction, module: Module) -> str:
    """``file:line`` of the innermost frame in the user's code; empty where the module keeps no frames."""
    position, innermost = instruction.frame, ""
    seen: set[int] = set()
    while 0 < position <= len(module.frames) and position not in seen:
        seen.add(position)
        frame = module.frames[position - 1]
        place = f"{frame.file}:{frame.line}"
        if _OWN_MODELS in frame.file or not any(library in frame.file for library in _LIBRARIES):
            return place
        innermost = innermost or place
        position = frame.parent
    if not innermost and instruction.source_file:
        return f"{instruction.source_file}:{instruction.source_line}"
    return innermost


class Origins:
    """Origins of the instructions of one computation; ``weigh`` ranks what a fusion holds, heaviest largest."""

    def __init__(
        self,
        computation: Computation,
        module: Module,
        step: str | None,
        weigh: Callable[[Instruction], tuple[int, int]],
    ) -> None:
        self._module = module
        self._step = step
        self._weigh = weigh
        self._users = computation.users()

    def of(self, instruction: Instruction) -> Origin:
        """The origin of an instruction; of what dominates a fusion; of a neighbour where it says nothing itself."""
        speaker = self._speaker(instruction)
        if speaker is None:
            speaker = self._neighbour(instruction, lambda _: True)
        if speaker is None:
            return Origin(instruction.op_name, phase=phase_of("", self._step) if self._step else "unknown")
        part = part_of(speaker.op_name)
        if part == "other" and any(name in speaker.op_name for name in _PLUMBING):
            served = self._neighbour(instruction, lambda near: has_part(near) and part_of(near.op_name) != "optimizer")
            part = part_of(served.op_name) if served is not None else part
        return Origin(
            scope=speaker.op_name,
            part=part,
            phase=phase_of(speaker.op_name, self._step),
            source=source_of(speaker, self._module) or source_of(instruction, self._module),
        )

    def _speaker(self, instruction: Instruction) -> Instruction | None:
        """The instruction whose metadata speaks for this one: the heaviest in a fusion that has a scope path.

        A name without a path is an argument's and says nothing on who uses it.
        """
        if instruction.opcode in ("fusion", "async-start"):
            silent = ("parameter", "constant", "fusion", "call")
            inside = [inner for inner, _ in self._module.held(instruction) if inner.opcode not in silent]
            for inner in sorted(inside, key=self._weigh, reverse=True):
                if "/" in inner.op_name:
                    return inner
        return instruction if "/" in instruction.op_name else None

    def _neighbour(self, instruction: Instruction, fits: Callable[[Instruction], bool]) -> Instruction | None:
        """The nearest speaker that fits: among what this instruction is made from, else among its users."""

        def users(near: Instruction) -> tuple[Instruction, ...]:
            return self._users.get(near.name, ())

        return self._search(instruction, fits, lambda near: near.operands) or self._search(instruction, fits, users)

    def _search(
        self,
        start: Instruction,
        fits: Callable[[Instruction], bool],
        neighbours: Callable[[Instruction], tuple[Instruction, ...]],
    ) -> Instruction | None:
        reached, seen = [start], {start.name}
        for _ in range(_REACH):
            reached = [n for near in reached for n in neighbours(near) if n.name not in seen]
            seen |= {near.name for near in reached}
            for near in reached:
                if (speaker := self._speaker(near)) is not None and fits(speaker):
                    return speaker
        return None


def has_part(instruction: Instruction) -> bool:
    return part_of(instruction.op_name) != "other"
