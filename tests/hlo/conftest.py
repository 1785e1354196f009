"""Compiles small functions for the tests of HLO costs."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from jaxprof.hlo.module import Module, parse_module


def serialized_module(function: Callable, *args, **options) -> bytes:
    compiled = jax.jit(function, **options).lower(*args).compile()
    return compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()


@pytest.fixture(scope="session")
def compile_module() -> Callable[..., Module]:
    """``compile_module(function, *abstract_args, **jit_options)``: the optimized module."""

    def compile_(function: Callable, *args, **options) -> Module:
        return parse_module(serialized_module(function, *args, **options))

    return compile_


@pytest.fixture(scope="session")
def make_mesh() -> Callable[..., Mesh]:
    """``make_mesh(data=2, tensor=4)``: a mesh of the first simulated devices in id order."""

    def make(**axes: int) -> Mesh:
        devices = np.array(jax.devices()[: int(np.prod(list(axes.values())))])
        return Mesh(devices.reshape(tuple(axes.values())), tuple(axes))

    return make
