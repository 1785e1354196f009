"""An HLO module as a graph, read from its proto. ``jaxprof.hlo.text`` makes the same from text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError

from jaxprof.errors import UserError
from jaxprof.hlo.groups import DeviceGroups, IotaGroups, ListedGroups, MeshGroups, iota_order
from jaxprof.hlo.shapes import DTYPES, Layout, Shape
from jaxprof.proto.hlo import HloModuleProto, HloProto


@dataclass(frozen=True, slots=True)
class DotDims:
    """Dimension numbers of a dot."""

    lhs_contracting: tuple[int, ...] = ()
    rhs_contracting: tuple[int, ...] = ()
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WindowDim:
    """One spatial dimension of a convolution or a windowed reduction."""

    size: int = 1
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    window_dilation: int = 1
    base_dilation: int = 1


@dataclass(frozen=True, slots=True)
class ConvDims:
    """Dimension numbers of a convolution; the spatial tuples are in the order of the window."""

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Alias:
    """One output of an instruction that stands in the buffer of one of its operands."""

    output_index: tuple[int, ...]
    operand: int
    operand_index: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Instruction:
    """One HLO instruction. Fields that its opcode does not have keep their defaults."""

    name: str
    opcode: str
    shape: Shape
    operands: tuple[Instruction, ...] = field(default=(), repr=False)
    called: tuple[str, ...] = ()
    """Names of computations: a fusion's, a loop's body and condition (in this order), branches, a reduction's."""
    parameter: int | None = None
    tuple_index: int | None = None
    value: int | None = None
    """Of an integer or boolean constant with one element."""
    dimensions: tuple[int, ...] = ()
    dot: DotDims | None = None
    window: tuple[WindowDim, ...] = ()
    conv: ConvDims | None = None
    feature_groups: int = 1
    batch_groups: int = 1
    fft_length: tuple[int, ...] = ()
    fusion_kind: str = ""
    direction: str = ""
    """Of a compare: LT, LE, GT, GE, EQ or NE."""
    target: str = ""
    """Of a custom call."""
    groups: DeviceGroups | None = None
    malformed: str = ""
    """What is wrong with the device groups where the text could not be understood."""
    pairs: tuple[tuple[int, int], ...] = ()
    channel: int | None = None
    global_ids: bool = False
    host_transfer: bool = False
    thread: str = ""
    """Execution thread of an async operation; empty for the main one."""
    aliases: tuple[Alias, ...] = ()
    backend_config: str = ""
    frontend_attributes: Mapping[str, str] = field(default_factory=dict)
    op_name: str = ""
    frame: int = 0
    """Position, from 1, in the module's stack frames; 0 where unknown."""
    source_file: str = ""
    source_line: int = 0

    @property
    def operand_shapes(self) -> tuple[Shape, ...]:
        return tuple(operand.shape for operand in self.operands)


@dataclass(frozen=True, slots=True, eq=False)
class Computation:
    """Instructions in the order in which they are scheduled."""

    name: str
    instructions: tuple[Instruction, ...] = field(repr=False)
    root: Instruction
    thread: str = ""

    def parameters(self) -> dict[int, Instruction]:
        return {i.parameter: i for i in self.instructions if i.parameter is not None}

    def users(self) -> dict[str, tuple[Instruction, ...]]:
        """The instructions that use a value, by the name of what they use."""
        found: dict[str, list[Instruction]] = {i.name: [] for i in self.instructions}
        for user in self.instructions:
            for operand in {operand.name for operand in user.operands}:
                found[operand].append(user)
        return {name: tuple(users) for name, users in found.items()}


@dataclass(frozen=True, slots=True)
class Frame:
    """One stack frame: where it is, and the position (from 1) of the frame that called it; 0 for the outermost."""

    file: str
    function: str
    line: int
    parent: int


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    name: str
    computations: Mapping[str, Computation] = field(repr=False)
    """By name; called computations stand before their callers."""
    entry: Computation = field(repr=False)
    frames: tuple[Frame, ...] = field(default=(), repr=False)
    replicas: int | None = None
    partitions: int | None = None
    aliases: tuple[Alias, ...] = ()
    """Outputs that reuse an argument's buffer; ``operand`` is the parameter's number."""

    def instructions(self) -> Iterator[Instruction]:
        for computation in self.computations.values():
            yield from computation.instructions

    def held(self, instruction: Instruction) -> Iterator[tuple[Instruction, Computation]]:
        """All that runs inside a fusion or an async wrapper, with the computation that holds each; else nothing."""
        if instruction.opcode not in ("fusion", "async-start"):
            return
        pending = list(instruction.called)
        while pending:
            computation = self.computations[pending.pop(0)]
            for inner in computation.instructions:
                yield inner, computation
                if inner.opcode in ("fusion", "call"):
                    pending += inner.called

    @property
    def tiled(self) -> bool:
        """Whether any layout has tiles, as the TPU compiler's have; memory space 1 is then VMEM and not HBM."""
        return any(leaf.layout.tiles for i in self.entry.instructions for leaf in i.shape.leaves())


def parse_module(data: bytes) -> Module:
    """The module in a serialized HloModuleProto, or in an HloProto as a compiler dump holds it.

    Raises UserError where the bytes are neither.
    """
    try:
        proto = HloModuleProto.FromString(data)
    except DecodeError:
        proto = None
    if proto is None or not proto.computations:
        try:
            proto = HloProto.FromString(data).hlo_module
        except DecodeError:
            raise UserError("this is no serialized HLO module; expected an HloModuleProto or HloProto") from None
    if not proto.computations:
        raise UserError("the HLO module holds no computations; is the file whole?")
    names = {computation.id: computation.name for computation in proto.computations}
    computations = {c.name: _computation(c, names, proto.schedule) for c in proto.computations}
    assignment = proto.device_assignment
    return Module(
        name=proto.name,
        computations=computations,
        entry=computations[names.get(proto.entry_computation_id, proto.entry_computation_name)],
        frames=_frames(proto.stack_frame_index),
        replicas=assignment.replica_count or None,
        partitions=assignment.computation_count or None,
        aliases=tuple(
            Alias(tuple(e.output_shape_index), e.parameter_number, tuple(e.parameter_shape_index))
            for e in proto.input_output_alias.entries
        ),
    )


def _computation(proto: Any, names: dict[int, str], schedule: Any) -> Computation:
    made: dict[int, Instruction] = {}
    for instruction in proto.instructions:
        made[instruction.id] = _instruction(instruction, made, names)
    order = (
        [i for i in schedule.sequences[proto.id].instruction_ids if i in made] if proto.id in schedule.sequences else []
    )
    if len(order) != len(made):
        order = list(made)
    return Computation(proto.name, tuple(made[i] for i in order), made[proto.root_id], proto.execution_thread)


def _instruction(proto: Any, made: dict[int, Instruction], names: dict[int, str]) -> Instruction:
    metadata = proto.metadata
    return Instruction(
        name=proto.name,
        opcode=proto.opcode,
        shape=shape_from_proto(proto.shape),
        operands=tuple(made[i] for i in proto.operand_ids),
        called=tuple(names[i] for i in proto.called_computation_ids),
        parameter=proto.parameter_number if proto.opcode == "parameter" else None,
        tuple_index=proto.tuple_index if proto.opcode == "get-tuple-element" else None,
        value=_value(proto.literal) if proto.opcode == "constant" else None,
        dimensions=tuple(proto.dimensions),
        dot=_dot(proto),
        window=tuple(
            WindowDim(
                d.size, d.stride, d.padding_low, d.padding_high, max(1, d.window_dilation), max(1, d.base_dilation)
            )
            for d in proto.window.dimensions
        ),
        conv=_conv(proto.convolution_dimension_numbers) if proto.HasField("convolution_dimension_numbers") else None,
        feature_groups=max(1, proto.feature_group_count),
        batch_groups=max(1, proto.batch_group_count),
        fft_length=tuple(proto.fft_length),
        fusion_kind=proto.fusion_kind,
        direction=proto.comparison_direction,
        target=proto.custom_call_target,
        groups=_groups(proto),
        pairs=tuple((pair.source, pair.target) for pair in proto.source_target_pairs),
        channel=proto.channel_id or None,
        global_ids=proto.use_global_device_ids,
        host_transfer=proto.is_host_transfer,
        thread=proto.async_execution_thread,
        aliases=tuple(
            Alias(tuple(a.output_shape_index), a.operand_index, tuple(a.operand_shape_index))
            for a in proto.output_operand_aliasing
        ),
        backend_config=proto.backend_config.decode("utf-8", "replace"),
        frontend_attributes=dict(proto.frontend_attributes.map),
        op_name=metadata.op_name,
        frame=metadata.stack_frame_id,
        source_file=metadata.source_file,
        source_line=metadata.source_line,
    )


def shape_from_proto(proto: Any) -> Shape:
    layout = proto.layout
    return Shape(
        dtype=DTYPES.get(proto.element_type, "opaque"),
        dims=tuple(proto.dimensions),
        layout=Layout(
            minor_to_major=tuple(layout.minor_to_major),
            tiles=tuple(tuple(max(-1, size) for size in tile.dimensions) for tile in layout.tiles),
            memory_space=layout.memory_space,
            element_bits=layout.element_size_in_bits,
            tail_alignment=max(1, layout.tail_padding_alignment_in_elements),
        ),
        elements=tuple(shape_from_proto(element) for element in proto.tuple_shapes),
    )


def _value(literal: Any) -> int | None:
    """The integer of a literal with one element; None for floats, arrays and tuples."""
    for values in (literal.s32s, literal.s64s, literal.u32s, literal.u64s, literal.preds):
        if len(values) == 1:
            return int(values[0])
    dtype = DTYPES.get(literal.shape.element_type, "")
    packed = {"s8": literal.s8s, "u8": literal.u8s, "s16": literal.s16s, "u16": literal.u16s}.get(dtype, b"")
    if packed and len(packed) == int(dtype[1:]) // 8:
        return int.from_bytes(packed, "little", signed=dtype[0] == "s")
    return None


def _dot(proto: Any) -> DotDims | None:
    if proto.HasField("dot_dimension_numbers"):
        dims = proto.dot_dimension_numbers
    elif proto.HasField("ragged_dot_dimension_numbers"):
        dims = proto.ragged_dot_dimension_numbers.dot_dimension_numbers
    else:
        return None
    return DotDims(
        tuple(dims.lhs_contracting_dimensions),
        tuple(dims.rhs_contracting_dimensions),
        tuple(dims.lhs_batch_dimensions),
        tuple(dims.rhs_batch_dimensions),
    )


def _conv(dims: Any) -> ConvDims:
    return ConvDims(
        dims.input_batch_dimension,
        dims.input_feature_dimension,
        tuple(dims.input_spatial_dimensions),
        dims.kernel_input_feature_dimension,
        dims.kernel_output_feature_dimension,
        tuple(dims.kernel_spatial_dimensions),
        dims.output_batch_dimension,
        dims.output_feature_dimension,
        tuple(dims.output_spatial_dimensions),
    )


def _groups(proto: Any) -> DeviceGroups | None:
    """The device groups, in whichever of its fields this version of XLA wrote them."""
    iota = proto.iota_device_list if proto.HasField("iota_device_list") else proto.device_list.iota_replica_group_list
    if iota.iota_reshape_dims:
        return IotaGroups(
            (iota.num_replica_groups, iota.num_devices_per_group),
            tuple(iota.iota_reshape_dims),
            tuple(iota.iota_transpose_perm),
        )
    if proto.HasField("mesh_device_list"):
        mesh = proto.mesh_device_list.mesh
        sizes = tuple(axis.size for axis in mesh.axes)
        return MeshGroups(
            tuple(axis.name for axis in mesh.axes),
            sizes,
            tuple(
                (a.mesh_axis_index, a.sub_axis_info.pre_size, a.sub_axis_info.size)
                if a.HasField("sub_axis_info")
                else (a.mesh_axis_index, 1, sizes[a.mesh_axis_index])
                for a in proto.mesh_device_list.axes
            ),
            _device_order(mesh),
        )
    listed = proto.device_list.replica_groups or proto.replica_groups
    if listed or proto.HasField("device_list"):
        return ListedGroups(tuple(tuple(group.replica_ids) for group in listed))
    return None


def _device_order(mesh: Any) -> tuple[int, ...]:
    """Devices in the mesh's own order, listed or as a transposed iota; empty where that is simply 0, 1, 2, ..."""
    if mesh.HasField("iota_device_ids"):
        dims = tuple(mesh.iota_device_ids.dimensions)
        return tuple(iota_order(dims, tuple(mesh.iota_device_ids.transpose) or tuple(range(len(dims)))))
    return tuple(mesh.device_ids)


def _frames(index: Any) -> tuple[Frame, ...]:
    frames = []
    for frame in index.stack_frames:
        location = index.file_locations[frame.file_location_id - 1]
        frames.append(
            Frame(
                index.file_names[location.file_name_id - 1],
                index.function_names[location.function_name_id - 1] if location.function_name_id else "",
                location.line,
                frame.parent_frame_id,
            )
        )
    return tuple(frames)
