"""Builds protobuf message classes from a field table, in a private pool.

No package ships the generated classes of XLA's protos, and XProf registers its own under the same names; a private pool
with only the fields that are used has neither trouble. Unknown fields are skipped by the parser as always.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TYPES = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "bytes": 12,
}  # fmt: skip
_REPEATED, _OPTIONAL = 3, 1


def build_messages(package: str, table: str) -> dict[str, Any]:
    """Message classes by name from a table such as::

        message Point
          1 int64 x
          2 repeated double y
          3 map<int64,Name> names
          4 oneof:value string text

    Fields of a type that is not a scalar name another message of the table. ``proto3`` semantics, so repeated scalars
    are packed when written and read either way. An int field that XLA declares as an enum is read as ``int32``.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name=f"jaxprof/{package}.proto", package=f"jaxprof.{package}", syntax="proto3"
    )
    message: Any = None
    names: list[str] = []
    for line in filter(None, (line.split("#")[0].strip() for line in table.splitlines())):
        if line.startswith("message "):
            message = file.message_type.add(name=line.split()[1])
            names.append(message.name)
            continue
        number, *words, name = line.split()
        field = message.field.add(name=name, number=int(number), label=_OPTIONAL)
        for word in words[:-1]:
            if word == "repeated":
                field.label = _REPEATED
            elif word.startswith("oneof:"):
                oneofs = [oneof.name for oneof in message.oneof_decl]
                if word[6:] not in oneofs:
                    message.oneof_decl.add(name=word[6:])
                    oneofs.append(word[6:])
                field.oneof_index = oneofs.index(word[6:])
        kind = words[-1]
        if kind.startswith("map<"):
            key, value = kind[4:-1].split(",")
            entry = message.nested_type.add(name="".join(part.capitalize() for part in name.split("_")) + "Entry")
            entry.options.map_entry = True
            _set_type(entry.field.add(name="key", number=1, label=_OPTIONAL), key, package)
            _set_type(entry.field.add(name="value", number=2, label=_OPTIONAL), value, package)
            field.label, field.type = _REPEATED, 11
            field.type_name = f".jaxprof.{package}.{message.name}.{entry.name}"
        else:
            _set_type(field, kind, package)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"jaxprof.{package}.{name}")) for name in names
    }


def _set_type(field: Any, kind: str, package: str) -> None:
    if kind in _TYPES:
        field.type = _TYPES[kind]
    else:
        field.type, field.type_name = 11, f".jaxprof.{package}.{kind}"
