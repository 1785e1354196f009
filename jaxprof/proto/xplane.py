"""XSpace, the profiler's trace format. Field numbers from tsl/profiler/protobuf/xplane.proto."""

from __future__ import annotations

from typing import Any

from jaxprof.proto.schema import build_messages

_MESSAGES = build_messages(
    "xplane",
    """
    message XSpace
      1 repeated XPlane planes
      2 repeated string errors
      3 repeated string warnings
      4 repeated string hostnames
    message XPlane
      1 int64 id
      2 string name
      3 repeated XLine lines
      4 map<int64,XEventMetadata> event_metadata
      5 map<int64,XStatMetadata> stat_metadata
      6 repeated XStat stats
    message XLine
      1 int64 id
      10 int64 display_id
      2 string name
      11 string display_name
      3 int64 timestamp_ns
      9 int64 duration_ps
      4 repeated XEvent events
    message XEvent
      1 int64 metadata_id
      2 oneof:data int64 offset_ps
      5 oneof:data int64 num_occurrences
      3 int64 duration_ps
      4 repeated XStat stats
    message XStat
      1 int64 metadata_id
      2 oneof:value double double_value
      3 oneof:value uint64 uint64_value
      4 oneof:value int64 int64_value
      5 oneof:value string str_value
      6 oneof:value bytes bytes_value
      7 oneof:value uint64 ref_value
    message XEventMetadata
      1 int64 id
      2 string name
      4 string display_name
      3 bytes metadata
      5 repeated XStat stats
      6 repeated int64 child_id
    message XStatMetadata
      1 int64 id
      2 string name
      3 string description
    """,
)

XSpace: Any = _MESSAGES["XSpace"]
XPlane: Any = _MESSAGES["XPlane"]
XLine: Any = _MESSAGES["XLine"]
XEvent: Any = _MESSAGES["XEvent"]
XStat: Any = _MESSAGES["XStat"]
XEventMetadata: Any = _MESSAGES["XEventMetadata"]
XStatMetadata: Any = _MESSAGES["XStatMetadata"]
