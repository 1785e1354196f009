"""An HLO module as a graph, read from its text. The proto is the better source: prefer ``jaxprof.hlo.module``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from jaxprof.errors import UserError
from jaxprof.hlo.attributes import aliases, attribute_fields, split_top, unquote
from jaxprof.hlo.module import Computation, Frame, Instruction, Module
from jaxprof.hlo.shapes import Layout, Shape, is_floating

_COMMENT = re.compile(r"/\*index=\d+\*/")
_TOKEN = re.compile(r'["(){}\[\]\n]')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_HEAD = re.compile(r"\s*(ENTRY\s+)?%?([\w.\-]+)\s*(?:\(.*)?\{$", re.DOTALL)
_INSTRUCTION = re.compile(r"\s*(ROOT\s+)?%?([\w.\-]+)\s*=\s*", re.DOTALL)
_OPCODE = re.compile(r"\s*([\w\-]+)\(")
_ARRAY = re.compile(r"\s*([a-z]\w*)\[([^\]]*)\]")
_TABLE_ROW = re.compile(r"(\d+) (.*)")
_NATIVE_ASYNC = {
    "async-start", "async-update", "async-done", "all-gather-start", "all-gather-done", "all-reduce-start",
    "all-reduce-done", "collective-permute-start", "collective-permute-done", "copy-start", "copy-done", "send-done",
    "recv-done",
}  # fmt: skip


def parse_text(text: str) -> Module:
    """The module that HLO text describes, as ``Compiled.as_text()`` or a compiler dump prints it.

    A computation ends only where its own bracket closes, so constants, attributes and kernels that spread over several
    lines do no harm. An async operation that is printed in short (``fusion-start``, ``reduce-scatter-start``) becomes
    an ``async-start`` of a computation with one instruction, as in the proto. Raises UserError where the text is no
    module.
    """
    if not text.lstrip().startswith("HloModule"):
        raise UserError("this is no HLO text; it has to start with 'HloModule'")
    computations: dict[str, Computation] = {}
    tables: dict[str, list[str]] = {}
    header, entry, table = "", None, None
    for statement in _statements(text):
        line = statement.strip()
        if line.startswith("HloModule"):
            header = line
        elif (head := _HEAD.match(line.split("\n", 1)[0])) and line.endswith("}"):
            computation = _computation(head[2], line, computations)
            computations[computation.name] = computation
            if head[1]:
                entry = computation
        elif row := _TABLE_ROW.match(line):
            tables.setdefault(table or "", []).append(row[2])
        elif line.isidentifier():
            table = line
    if entry is None:
        raise UserError("the HLO text has no ENTRY computation; is the file whole?")
    name, *fields = split_top(header.removeprefix("HloModule").strip())
    settings = {key.strip(): value for key, _, value in (field.partition("=") for field in fields)}
    return Module(
        name=name.lstrip("%"),
        computations=computations,
        entry=entry,
        frames=_frames(tables),
        replicas=int(settings.get("replica_count", 1)),
        partitions=int(settings.get("num_partitions", 1)),
        aliases=aliases(settings.get("input_output_alias", "")),
    )


def _statements(text: str) -> Iterator[str]:
    """The text cut at the line ends that stand outside every bracket and string."""
    depth = start = position = 0
    while token := _TOKEN.search(text, position):
        position = token.end()
        match token[0]:
            case '"':
                string = _STRING.match(text, token.start())
                position = string.end() if string else len(text)
            case "\n":
                if depth == 0:
                    yield text[start : token.start()]
                    start = position
            case "(" | "{" | "[":
                depth += 1
            case _:
                depth -= 1
    yield text[start:]


def _computation(name: str, text: str, known: dict[str, Computation]) -> Computation:
    body = text[text.index("{\n") + 1 : text.rindex("}")]
    made: dict[str, Instruction] = {}
    root = None
    for statement in _statements(body):
        if (head := _INSTRUCTION.match(statement)) is None:
            continue
        instruction = _instruction(head[2], _COMMENT.sub("", statement[head.end() :]), made, known)
        made[instruction.name] = instruction
        if head[1]:
            root = instruction
    if not made:
        raise UserError(f"computation {name} has no instructions; is the file whole?")
    thread = re.search(r'execution_thread="([^"]*)"\s*$', text)
    return Computation(name, tuple(made.values()), root or list(made.values())[-1], thread[1] if thread else "")


def _instruction(name: str, text: str, made: dict[str, Instruction], known: dict[str, Computation]) -> Instruction:
    shape, position = parse_shape(text)
    opcode_match = _OPCODE.match(text, position)
    if opcode_match is None:
        raise UserError(f"instruction {name} has no opcode: {text[:80]!r}")
    opcode = opcode_match[1]
    end = _closing(text, opcode_match.end() - 1)
    arguments = text[opcode_match.end() : end]
    attributes = {}
    for part in split_top(text[end + 1 :].lstrip().removeprefix(",")):
        key, _, value = (word.strip() for word in part.partition("="))
        if key == "device_ids" and "replica_groups" in attributes:  # belongs to the mesh before it, comma or not
            attributes["replica_groups"] += f", {part}"
        elif value:
            attributes[key] = value
    operands: tuple[Instruction, ...] = ()
    if opcode not in ("parameter", "constant", "iota"):
        try:
            operands = tuple(made[_reference(part)] for part in split_top(arguments))
        except KeyError as missing:
            raise UserError(f"instruction {name} uses {missing}, which is not defined before it") from None
    fields = attribute_fields(opcode, attributes, arguments)
    if is_floating(shape.dtype):
        fields.pop("value", None)
    if opcode.endswith(("-start", "-update", "-done")) and opcode not in _NATIVE_ASYNC:
        plain, kind = opcode.rsplit("-", 1)
        called = fields.pop("called", ()) if plain == "call" else ()
        if kind == "start" and plain != "call":
            called = (_wrap(name, plain, shape, operands, fields, known),)
        kept = ("op_name", "frame", "source_file", "source_line", "thread", "frontend_attributes", "backend_config")
        opcode, fields = f"async-{kind}", {key: fields[key] for key in kept if key in fields}
        fields["called"] = called
    return Instruction(name=name, opcode=opcode, shape=shape, operands=operands, **fields)


def _wrap(
    name: str,
    opcode: str,
    shape: Shape,
    operands: tuple[Instruction, ...],
    fields: dict[str, Any],
    known: dict[str, Computation],
) -> str:
    """Writes out the computation that an async operation's short form leaves out; returns its name."""
    inputs = tuple(
        Instruction(name=f"{name}.parameter.{number}", opcode="parameter", shape=operand.shape, parameter=number)
        for number, operand in enumerate(operands)
    )
    result = shape.elements[1] if len(shape.elements) > 1 else shape
    root = Instruction(name=f"{name}.wrapped", opcode=opcode, shape=result, operands=inputs, **fields)
    known[f"{name}.computation"] = Computation(f"{name}.computation", (*inputs, root), root, fields.get("thread", ""))
    return f"{name}.computation"


def _reference(text: str) -> str:
    """The name in an operand, which may have its shape before it."""
    return text.split()[-1].lstrip("%") if text.strip() else ""


def _closing(text: str, position: int) -> int:
    """Position of the bracket that closes the one at ``position``."""
    depth = 0
    while token := _TOKEN.search(text, position):
        position = token.end()
        if token[0] == '"':
            string = _STRING.match(text, token.start())
            position = string.end() if string else len(text)
        elif token[0] in "({[":
            depth += 1
        elif token[0] != "\n":
            depth -= 1
            if depth == 0:
                return token.start()
    raise UserError(f"a bracket is never closed: {text[:80]!r}")


def parse_shape(text: str, position: int = 0) -> tuple[Shape, int]:
    """The shape at ``position`` and where it ends, such as ``(f32[8,4]{1,0:T(8,128)S(1)}, token[])``."""
    while text[position : position + 1].isspace():
        position += 1
    if text.startswith("(", position):
        end = _closing(text, position)
        parts = split_top(text[position + 1 : end])
        return Shape("tuple", elements=tuple(parse_shape(part)[0] for part in parts)), end + 1
    array = _ARRAY.match(text, position)
    if array is None:
        raise UserError(f"expected a shape, found {text[position : position + 40]!r}")
    dims = tuple(int(size.strip().lstrip("<=")) for size in array[2].split(",") if size.strip())
    position = array.end()
    if not text.startswith("{", position):
        return Shape(array[1], dims), position
    end = _closing(text, position)
    return Shape(array[1], dims, _layout(text[position + 1 : end])), end + 1


def _layout(text: str) -> Layout:
    order, _, properties = text.partition(":")
    tiles = re.match(r"T((?:\([\d,*]*\))+)", properties)
    space, bits, tail = (re.search(rf"{letter}\((\d+)\)", properties) for letter in "SEL")
    return Layout(
        minor_to_major=tuple(int(axis) for axis in order.split(",") if axis),
        tiles=tuple(
            tuple(-1 if size == "*" else int(size) for size in tile.split(","))
            for tile in (re.findall(r"\(([\d,*]+)\)", tiles[1]) if tiles else ())
        ),
        memory_space=int(space[1]) if space else 0,
        element_bits=int(bits[1]) if bits else 0,
        tail_alignment=int(tail[1]) if tail else 1,
    )


def _frames(tables: dict[str, list[str]]) -> tuple[Frame, ...]:
    """The stack frames of the tables at the head of the text. A frame that has no caller names itself there."""
    files = [unquote(row) for row in tables.get("FileNames", ())]
    functions = [unquote(row) for row in tables.get("FunctionNames", ())]
    locations = [dict(re.findall(r"(\w+)=(\d+)", row)) for row in tables.get("FileLocations", ())]
    frames = []
    for row in tables.get("StackFrames", ()):
        frame = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", row)}
        location = locations[frame["file_location_id"] - 1]
        frames.append(
            Frame(
                files[int(location["file_name_id"]) - 1],
                functions[int(location["function_name_id"]) - 1],
                int(location["line"]),
                frame.get("parent_frame_id", 1) - 1,
            )
        )
    return tuple(frames)
