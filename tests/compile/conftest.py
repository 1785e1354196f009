"""Meshes over the eight simulated devices."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import Mesh


@pytest.fixture(scope="session")
def mesh8() -> Mesh:
    return Mesh(np.array(jax.devices()), ("x",))


@pytest.fixture(scope="session")
def mesh24() -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(2, 4), ("dp", "tp"))
