"""HloModule and BufferAssignment. Field numbers from xla/service/hlo.proto and xla/xla_data.proto.

Only what jaxprof reads is declared. ``iota_device_list`` and ``mesh_device_list`` are what jaxlib 0.12 writes where
older ones write ``device_list``; the oldest write ``replica_groups``.
"""

from __future__ import annotations

from typing import Any

from jaxprof.proto.schema import build_messages

_MESSAGES = build_messages(
    "hlo",
    """
    message HloProto
      1 HloModuleProto hlo_module
      3 BufferAssignmentProto buffer_assignment
    message HloModuleProto
      1 string name
      2 string entry_computation_name
      6 int64 entry_computation_id
      3 repeated HloComputationProto computations
      4 ProgramShape host_program_shape
      5 int64 id
      7 HloSchedule schedule
      8 InputOutputAlias input_output_alias
      15 DeviceAssignment device_assignment
      17 StackFrameIndex stack_frame_index
      19 FrontendAttributes frontend_attributes
    message DeviceAssignment
      1 int32 replica_count
      2 int32 computation_count
    message HloSchedule
      1 map<int64,InstructionSequence> sequences
    message InstructionSequence
      1 repeated int64 instruction_ids
    message InputOutputAlias
      1 repeated AliasEntry entries
    message AliasEntry
      1 repeated int64 output_shape_index
      2 int64 parameter_number
      3 repeated int64 parameter_shape_index
      4 int32 kind
    message StackFrameIndex
      1 repeated string file_names
      2 repeated string function_names
      3 repeated FileLocation file_locations
      4 repeated StackFrame stack_frames
    message FileLocation
      1 int32 file_name_id
      2 int32 function_name_id
      3 int32 line
    message StackFrame
      1 int32 file_location_id
      2 int32 parent_frame_id
    message HloComputationProto
      1 string name
      2 repeated HloInstructionProto instructions
      4 ProgramShape program_shape
      5 int64 id
      6 int64 root_id
      7 bool is_fusion_computation
      8 string execution_thread
    message HloInstructionProto
      1 string name
      2 string opcode
      3 Shape shape
      7 OpMetadata metadata
      8 Literal literal
      9 int64 parameter_number
      11 string fusion_kind
      13 int64 tuple_index
      14 repeated int64 dimensions
      15 Window window
      16 ConvolutionDimensions convolution_dimension_numbers
      17 repeated SliceDimensions slice_dimensions
      20 repeated int64 dynamic_slice_sizes
      26 int64 channel_id
      28 string custom_call_target
      30 DotDimensions dot_dimension_numbers
      31 int32 fft_type
      32 repeated int64 fft_length
      33 GatherDimensions gather_dimension_numbers
      34 repeated int64 gather_slice_sizes
      35 int64 id
      36 repeated int64 operand_ids
      37 repeated int64 control_predecessor_ids
      38 repeated int64 called_computation_ids
      43 bytes backend_config
      47 bool is_host_transfer
      48 ScatterDimensions scatter_dimension_numbers
      49 repeated ReplicaGroup replica_groups
      50 int64 feature_group_count
      51 PrecisionConfig precision_config
      52 repeated SourceTarget source_target_pairs
      58 int64 batch_group_count
      63 string comparison_direction
      68 FrontendAttributes frontend_attributes
      71 bool use_global_device_ids
      74 repeated OutputOperandAliasing output_operand_aliasing
      79 string async_execution_thread
      87 CollectiveDeviceList device_list
      90 RaggedDotDimensions ragged_dot_dimension_numbers
      92 IotaReplicaGroupList iota_device_list
      93 MeshAxesReplicaGroupList mesh_device_list
    message ProgramShape
      1 repeated Shape parameters
      2 Shape result
      3 repeated string parameter_names
    message Shape
      2 int32 element_type
      3 repeated int64 dimensions
      4 repeated Shape tuple_shapes
      5 Layout layout
      6 repeated bool is_dynamic_dimension
    message Layout
      1 repeated int64 minor_to_major
      6 repeated Tile tiles
      7 int64 element_size_in_bits
      8 int64 memory_space
      16 int64 tail_padding_alignment_in_elements
    message Tile
      1 repeated int64 dimensions
    message OpMetadata
      1 string op_type
      2 string op_name
      3 string source_file
      4 int32 source_line
      12 string deduplicated_name
      15 int32 stack_frame_id
      16 string scheduling_name
    message Literal
      1 Shape shape
      2 repeated bool preds
      3 bytes u8s
      4 repeated int64 s32s
      5 repeated int64 s64s
      6 repeated uint64 u32s
      7 repeated uint64 u64s
      8 repeated float f32s
      9 repeated double f64s
      15 bytes s8s
      16 bytes u16s
      17 bytes s16s
    message Window
      1 repeated WindowDimension dimensions
    message WindowDimension
      1 int64 size
      2 int64 stride
      3 int64 padding_low
      4 int64 padding_high
      5 int64 window_dilation
      6 int64 base_dilation
      7 bool window_reversal
    message ConvolutionDimensions
      7 int64 input_batch_dimension
      8 int64 input_feature_dimension
      11 repeated int64 input_spatial_dimensions
      3 int64 kernel_input_feature_dimension
      4 int64 kernel_output_feature_dimension
      6 repeated int64 kernel_spatial_dimensions
      9 int64 output_batch_dimension
      10 int64 output_feature_dimension
      12 repeated int64 output_spatial_dimensions
    message SliceDimensions
      1 int64 start
      2 int64 limit
      3 int64 stride
    message DotDimensions
      1 repeated int64 lhs_contracting_dimensions
      2 repeated int64 rhs_contracting_dimensions
      3 repeated int64 lhs_batch_dimensions
      4 repeated int64 rhs_batch_dimensions
    message RaggedDotDimensions
      1 DotDimensions dot_dimension_numbers
      2 repeated int64 lhs_ragged_dimensions
      3 repeated int64 rhs_group_dimensions
    message GatherDimensions
      1 repeated int64 offset_dims
      2 repeated int64 collapsed_slice_dims
      3 repeated int64 start_index_map
      4 int64 index_vector_dim
      5 repeated int64 operand_batching_dims
      6 repeated int64 start_indices_batching_dims
    message ScatterDimensions
      1 repeated int64 update_window_dims
      2 repeated int64 inserted_window_dims
      3 repeated int64 scatter_dims_to_operand_dims
      4 int64 index_vector_dim
      5 repeated int64 input_batching_dims
      6 repeated int64 scatter_indices_batching_dims
    message PrecisionConfig
      1 repeated int32 operand_precision
      2 int32 algorithm
    message FrontendAttributes
      1 map<string,string> map
    message OutputOperandAliasing
      1 repeated int64 output_shape_index
      2 int64 operand_index
      3 repeated int64 operand_shape_index
    message ReplicaGroup
      1 repeated int64 replica_ids
    message SourceTarget
      1 int64 source
      2 int64 target
    message CollectiveDeviceList
      1 repeated ReplicaGroup replica_groups
      2 IotaReplicaGroupList iota_replica_group_list
    message IotaReplicaGroupList
      1 int64 num_replica_groups
      2 int64 num_devices_per_group
      3 repeated int64 iota_reshape_dims
      4 repeated int64 iota_transpose_perm
    message MeshAxesReplicaGroupList
      1 Mesh mesh
      2 repeated AxisRef axes
    message Mesh
      1 repeated MeshAxis axes
      2 repeated int64 device_ids
      3 MeshIota iota_device_ids
    message MeshIota
      1 repeated int64 dimensions
      2 repeated int64 transpose
    message MeshAxis
      1 string name
      2 int64 size
    message AxisRef
      1 int64 mesh_axis_index
      2 SubAxis sub_axis_info
    message SubAxis
      1 int64 pre_size
      2 int64 size
    message BufferAssignmentProto
      1 repeated LogicalBuffer logical_buffers
      2 repeated BufferAlias buffer_aliases
      3 repeated BufferAllocation buffer_allocations
      4 repeated HeapSimulatorTrace heap_simulator_traces
    message LogicalBuffer
      1 int64 id
      2 int64 size
      3 BufferLocation defined_at
      4 int64 color
    message BufferLocation
      2 string instruction_name
      3 repeated int64 shape_index
      4 int64 instruction_id
    message BufferAlias
      1 int64 source_buffer_id
      2 BufferLocation location
    message BufferAllocation
      1 int64 index
      2 int64 size
      3 bool is_thread_local
      5 bool is_entry_computation_parameter
      6 int64 parameter_number
      7 bool maybe_live_out
      8 int64 color
      9 repeated AssignedBuffer assigned
      10 repeated int64 parameter_shape_index
      11 bool is_tuple
      12 bool is_constant
    message AssignedBuffer
      1 int64 logical_buffer_id
      2 int64 offset
      3 int64 size
    message HeapSimulatorTrace
      1 repeated HeapEvent events
      2 bool whole_module_simulation
      3 int64 buffer_allocation_index
    message HeapEvent
      1 int32 kind  # 0 alloc, 1 free, 2 share with the canonical buffer
      2 int64 buffer_id
      3 string computation_name
      4 string instruction_name
      5 int64 share_with_canonical_id
    """,
)

HloProto: Any = _MESSAGES["HloProto"]
HloModuleProto: Any = _MESSAGES["HloModuleProto"]
HloComputationProto: Any = _MESSAGES["HloComputationProto"]
HloInstructionProto: Any = _MESSAGES["HloInstructionProto"]
ShapeProto: Any = _MESSAGES["Shape"]
BufferAssignmentProto: Any = _MESSAGES["BufferAssignmentProto"]
