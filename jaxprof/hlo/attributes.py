"""The attributes of one instruction in HLO text, as fields of ``Instruction``."""

from __future__ import annotations

import re
from typing import Any

from jaxprof.hlo.groups import DeviceGroups, IotaGroups, ListedGroups, MeshGroups, iota_order
from jaxprof.hlo.module import Alias, ConvDims, DotDims, WindowDim

_TOKEN = re.compile(r'["(){}\[\],]')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}
_NAME = r"%?([\w.\-]+)"


def split_top(text: str) -> list[str]:
    """The parts of ``text`` between the commas that stand outside every bracket and string."""
    parts, depth, start, position = [], 0, 0, 0
    while token := _TOKEN.search(text, position):
        position = token.end()
        if token[0] == '"':
            string = _STRING.match(text, token.start())
            position = string.end() if string else len(text)
        elif token[0] in "({[":
            depth += 1
        elif token[0] in ")}]":
            depth -= 1
        elif depth == 0:
            parts.append(text[start : token.start()].strip())
            start = position
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def unquote(text: str) -> str:
    """A quoted string with C escapes, as text; octal escapes are bytes of UTF-8."""
    text = text.strip()
    if len(text) < 2 or text[0] != '"':
        return text

    def escaped(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code, 8) & 255]) if len(code) == 3 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(escaped, text[1:-1].encode()).decode("utf-8", "replace")


def attribute_fields(opcode: str, attributes: dict[str, str], arguments: str) -> dict[str, Any]:
    """Fields of ``Instruction`` from its attributes; ``arguments`` is what stands in its brackets."""
    fields: dict[str, Any] = {}
    match opcode:
        case "parameter":
            fields["parameter"] = int(arguments)
        case "constant":
            literal = arguments.strip("{} \n")
            boolean = {"true": 1, "false": 0}.get(literal)
            fields["value"] = boolean if boolean is not None else int(literal) if _is_integer(literal) else None
        case "get-tuple-element":
            fields["tuple_index"] = int(attributes["index"])
    if (called := _called(attributes)) and opcode != "async-done":
        fields["called"] = called
    for key in ("dimensions", "iota_dimension"):
        if key in attributes:
            fields["dimensions"] = _numbers(attributes[key])
    if "fft_length" in attributes:
        fields["fft_length"] = _numbers(attributes["fft_length"])
    if opcode in ("dot", "ragged-dot"):
        kinds = ("lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims")
        fields["dot"] = DotDims(*(_numbers(attributes.get(kind, "")) for kind in kinds))
    if "window" in attributes:
        fields["window"] = _window(attributes["window"])
    if "dim_labels" in attributes:
        fields["conv"], spatial = _conv(attributes["dim_labels"])
        fields.setdefault("window", (WindowDim(),) * spatial)
    if "replica_groups" in attributes:
        fields["groups"] = _groups(attributes["replica_groups"])
        if fields["groups"] is None:
            fields["malformed"] = f"replica_groups={attributes['replica_groups']} cannot be read"
    if "source_target_pairs" in attributes:
        ids = _numbers(attributes["source_target_pairs"])
        fields["pairs"] = tuple(zip(ids[::2], ids[1::2], strict=False))
    if "metadata" in attributes:
        fields |= _metadata(attributes["metadata"])
    if "frontend_attributes" in attributes:
        fields["frontend_attributes"] = {
            key.strip(): unquote(value)
            for key, _, value in (part.partition("=") for part in split_top(attributes["frontend_attributes"][1:-1]))
        }
    if "output_to_operand_aliasing" in attributes:
        fields["aliases"] = aliases(attributes["output_to_operand_aliasing"])
    simple = {
        "feature_group_count": ("feature_groups", int), "batch_group_count": ("batch_groups", int),
        "kind": ("fusion_kind", str), "direction": ("direction", str), "custom_call_target": ("target", unquote),
        "channel_id": ("channel", int), "use_global_device_ids": ("global_ids", "true".__eq__),
        "is_host_transfer": ("host_transfer", "true".__eq__), "async_execution_thread": ("thread", unquote),
        "backend_config": ("backend_config", unquote),
    }  # fmt: skip
    for key, (field, convert) in simple.items():
        if key in attributes:
            fields[field] = convert(attributes[key])
    return fields


def aliases(text: str) -> tuple[Alias, ...]:
    """``{ {0}: (1, {}, may-alias), ... }`` of a module or an instruction."""
    found = re.findall(r"\{([\d, ]*)\}:\s*\((\d+),\s*\{([\d, ]*)\}", text)
    return tuple(Alias(_numbers(output), int(operand), _numbers(index)) for output, operand, index in found)


def _is_integer(text: str) -> bool:
    return bool(re.fullmatch(r"-?\d+", text))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"-?\d+", text))


def _called(attributes: dict[str, str]) -> tuple[str, ...]:
    """Computations in the order of the proto: body before condition, true branch before false branch."""
    names: list[str] = []
    keys = (
        "calls", "to_apply", "body", "condition", "select", "scatter", "true_computation", "false_computation",
        "branch_computations", "called_computations",
    )  # fmt: skip
    for key in keys:
        if key in attributes:
            names += re.findall(_NAME, attributes[key])
    return tuple(names)


def _window(text: str) -> tuple[WindowDim, ...]:
    """``{size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=2x2 rhs_dilate=1x1}``; lhs is the base, rhs the window."""
    values = dict(part.split("=", 1) for part in text.strip("{}").split())
    rank = len(values["size"].split("x")) if "size" in values else 0

    def ints(key: str) -> list[int]:
        return [int(number) for number in values[key].split("x")] if key in values else [1] * rank

    pads = [tuple(map(int, pad.split("_"))) for pad in values["pad"].split("x")] if "pad" in values else [(0, 0)] * rank
    parts = zip(ints("size"), ints("stride"), pads, ints("rhs_dilate"), ints("lhs_dilate"), strict=True)
    return tuple(WindowDim(size, stride, low, high, inner, base) for size, stride, (low, high), inner, base in parts)


def _conv(labels: str) -> tuple[ConvDims, int]:
    """``b01f_01io->b01f`` and the number of spatial dimensions."""
    sides, output = labels.split("->")
    inputs, kernel = sides.split("_")

    def spatial(side: str) -> tuple[int, ...]:
        return tuple(side.index(str(number)) for number in range(len(side) - 2))

    dims = ConvDims(
        inputs.index("b"), inputs.index("f"), spatial(inputs),
        kernel.index("i"), kernel.index("o"), spatial(kernel),
        output.index("b"), output.index("f"), spatial(output),
    )  # fmt: skip
    return dims, len(inputs) - 2


def _groups(text: str) -> DeviceGroups | None:
    """Any notation of replica groups; None where it is none of them."""
    if iota := re.fullmatch(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text):
        return IotaGroups(_numbers(iota[1]), _numbers(iota[2]), _numbers(iota[3] or ""))
    if mesh := re.fullmatch(r"mesh\[([^\]]*)\](?:,\s*device_ids=\((.*)\))?\s*\{([^}]*)\}", text):
        pairs = re.findall(r"'([^']*)'=(\d+)", mesh[1])
        names, sizes = tuple(name for name, _ in pairs), tuple(int(size) for _, size in pairs)
        axes = []
        for name, before, part in re.findall(r"'([^']*)'(?::\((\d+)\)(\d+))?", mesh[3]):
            if name not in names:
                return None
            axis = names.index(name)
            axes.append((axis, int(before or 1), int(part or sizes[axis])))
        return MeshGroups(names, sizes, tuple(axes), _device_order(mesh[2] or ""))
    if re.fullmatch(r"\{(\s*\{[\d, ]*\}\s*,?)*\s*\}", text):
        return ListedGroups(tuple(_numbers(group) for group in re.findall(r"\{([\d, ]*)\}", text[1:-1])))
    return None


def _device_order(text: str) -> tuple[int, ...]:
    """Devices of a mesh in its own order: listed, or as an iota such as ``[2,4]T(1,0)``."""
    if iota := re.fullmatch(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", text):
        dims = _numbers(iota[1])
        return tuple(iota_order(dims, _numbers(iota[2]) if iota[2] else tuple(range(len(dims)))))
    return _numbers(text)


def _metadata(text: str) -> dict[str, Any]:
    values = {key: value for key, value in re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|[^\s}]+)', text, re.DOTALL)}
    return {
        "op_name": unquote(values.get("op_name", "")),
        "frame": int(values.get("stack_frame_id", 0)),
        "source_file": unquote(values.get("source_file", "")),
        "source_line": int(values.get("source_line", 0)),
    }
