"""The arguments of a compiled program, leaf by leaf: name, owner, bytes on a device, and the parameter they became."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from jaxprof.hlo.program import Argument, Owner

_HLO_DTYPES = {"bool": "pred", "float": "f", "int": "s", "uint": "u", "complex": "c", "bfloat": "bf"}


def hlo_dtype(dtype: Any) -> str:
    """HLO's spelling of a dtype: f32, bf16, s8, pred, f8e4m3fn."""
    name = np.dtype(dtype).name
    if name in ("bool", "bool_"):
        return "pred"
    if name.startswith("float8_") or name.startswith("float4_"):
        return "f" + name[5:].replace("_", "")
    kind = name.rstrip("0123456789")
    return _HLO_DTYPES[kind] + name[len(kind) :]


def leaf_paths(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], infos: Any
) -> list[tuple[str, str]]:
    """For every leaf of ``infos`` its path in ``args`` and the same for people: ``0.layers.q``, ``state.layers.q``.

    ``infos`` is ``Lowered.args_info``. Its own tree counts where the caller's does not match it leaf by leaf, as with
    static arguments, or with the flat states into which ``nnx.jit`` turns modules that share variables.
    """
    flat = jax.tree_util.tree_flatten_with_path(infos)[0]
    given = jax.tree_util.tree_flatten_with_path((args, dict(kwargs)))[0]
    if [np.shape(leaf) for _, leaf in given] == [info.shape for _, info in flat]:
        names = _positional_names(function, len(args))
        return [_path(keys, names) for keys, _ in given]
    return [_path(keys, []) for keys, _ in flat]


def shown_paths(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """For every leaf of the arguments its path for people."""
    names = _positional_names(function, len(args))
    return [_path(keys, names)[1] for keys, _ in jax.tree_util.tree_flatten_with_path((args, dict(kwargs)))[0]]


def _positional_names(function: Callable[..., Any], count: int) -> list[str]:
    """Names of the first parameters as the function's signature has them; fewer where it takes ``*args``."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in kinds][:count]


def _path(keys: Sequence[Any], names: list[str]) -> tuple[str, str]:
    group, *rest = keys
    is_keyword = bool(getattr(group, "idx", 0))
    path = jax.tree_util.keystr(tuple(rest), simple=True, separator=".")
    if is_keyword or not rest:
        return path, path
    position = getattr(rest[0], "idx", None)
    if nnx_variable := rest[-1:] and getattr(rest[-1], "name", None) == "value":
        rest = rest[:-1]
    shown = jax.tree_util.keystr(tuple(rest), simple=True, separator=".") if nnx_variable else path
    if position is not None and position < len(names):
        shown = ".".join([names[position], *shown.split(".")[1:]])
    return path, shown


def arguments_of(
    paths: Sequence[tuple[str, str]],
    infos: Sequence[Any],
    shardings: Sequence[Sharding | None],
    given: Sequence[Any],
    owner: Callable[[str, str], Owner],
    parameters: int,
) -> tuple[Argument, ...]:
    """One Argument for every leaf.

    ``shardings`` are the compiled program's, None for an unused argument that it does not take; ``given`` the leaves
    that the caller passed (a dropped one keeps the sharding that it came with). ``owner`` takes both paths.
    ``parameters`` is how many the entry computation has: captured constants and tokens, if they became parameters,
    stand before the arguments.
    """
    number = parameters - sum(sharding is not None for sharding in shardings)
    made = []
    for (path, shown), info, sharding, leaf in zip(paths, infos, shardings, given, strict=True):
        taken = sharding is not None
        shape, dtype = _physical(info)
        lies = sharding if taken else getattr(leaf, "sharding", None)
        # The sharding is one of the logical shape; a random key's own dimensions are never cut.
        local = lies.shard_shape(tuple(info.shape)) if lies is not None else tuple(info.shape)
        cuts = math.prod(-(-size // part) for size, part in zip(info.shape, local, strict=True) if part)
        made.append(
            Argument(
                path=shown,
                dtype=hlo_dtype(dtype),
                shape=shape,
                device_bytes=_bytes((*local, *shape[len(local) :]), dtype),
                owner=owner(path, shown),
                donated=bool(info.donated),
                parameter=number if taken else None,
                replicas=len(lies.device_set) // cuts if lies is not None else 1,
            )
        )
        number += taken
    return tuple(made)


def _physical(info: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype as they lie in memory; a random key is an array of integers with more dimensions."""
    if jnp.issubdtype(info.dtype, jax.dtypes.extended):
        data = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(info.shape, info.dtype))
        return tuple(data.shape), data.dtype
    return tuple(info.shape), info.dtype


def _bytes(shape: tuple[int, ...], dtype: Any) -> int:
    hlo = hlo_dtype(dtype)
    bits = int(hlo[1:]) if hlo in ("s2", "s4", "u2", "u4") else np.dtype(dtype).itemsize * 8
    return -(-math.prod(shape) * bits // 8)
