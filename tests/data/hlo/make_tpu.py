"""Makes the TPU modules of this folder with the real compiler and no TPU: ``python make_tpu.py FOLDER``.

Needs ``pip install "jax[tpu]==0.12.0.1"`` in an environment of its own. Each module is a gzipped HloModuleProto.
"""

import gzip
import os
import pathlib
import sys

for name, value in {
    "JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "TPU_MIN_LOG_LEVEL": "3", "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8", "TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0",
}.items():  # fmt: skip
    os.environ.setdefault(name, value)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

LAYERS, WIDTH, HIDDEN, BATCH, LENGTH = 4, 1024, 4096, 8, 2048


def mesh_of(topology, options=None, **axes):
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology, **(options or {})).devices
    return Mesh(np.array(devices).reshape(tuple(axes.values())), tuple(axes))


def train_step(mesh, up, down, activations):
    """A scanned two-matmul layer with full remat, its gradient and a plain update of donated weights."""

    def sharding(spec):
        return NamedSharding(mesh, PartitionSpec(*spec))

    def layer(x, weights):
        w_up, w_down = weights
        with jax.named_scope("mlp"):
            y = jnp.tanh(x @ w_up) @ w_down
        return jax.lax.with_sharding_constraint(x + y, sharding(activations)), None

    def loss(weights, x):
        y, _ = jax.lax.scan(jax.checkpoint(layer), x, weights)
        with jax.named_scope("loss"):
            return jnp.mean(jnp.square(y.astype(jnp.float32)))

    def step(weights, x):
        value, gradients = jax.value_and_grad(loss)(weights, x)
        with jax.named_scope("optimizer"):
            return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), value

    def abstract(shape, spec):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding(spec))

    weights = (abstract((LAYERS, WIDTH, HIDDEN), up), abstract((LAYERS, HIDDEN, WIDTH), down))
    outputs = ((sharding(up), sharding(down)), None)
    x = abstract((BATCH, LENGTH, WIDTH), activations)
    return jax.jit(step, donate_argnums=0, out_shardings=outputs).lower(weights, x)


def fsdp_update(mesh):
    """Weights sharded by rows, batch sharded: one all-gather and one reduce-scatter."""
    rows = NamedSharding(mesh, PartitionSpec("fsdp"))

    def update(w, x):
        return w - 0.1 * jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w)

    def abstract(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=rows)

    return jax.jit(update, out_shardings=rows).lower(abstract(512, 512), abstract(64, 512))


def pallas_matmuls(mesh):
    """A kernel with a cost estimate and one without, 2 x 256^3 FLOPs each."""

    def kernel(a, b, out):
        out[...] = jnp.dot(a[...], b[...], preferred_element_type=jnp.float32)

    def matmul(a, b, name, cost):
        return pl.pallas_call(
            kernel,
            grid=(4,),
            in_specs=[pl.BlockSpec((64, 256), lambda i: (i, 0)), pl.BlockSpec((256, 256), lambda i: (0, 0))],
            out_specs=pl.BlockSpec((64, 256), lambda i: (i, 0)),
            out_shape=jax.ShapeDtypeStruct((256, 256), jnp.float32),
            cost_estimate=cost,
            name=name,
        )(a, b)

    def both(a, b):
        cost = pl.CostEstimate(flops=2 * 256**3, bytes_accessed=3 * 256 * 256 * 4, transcendentals=0)
        return matmul(matmul(a, b, "priced_matmul", cost), b, "plain_matmul", None)

    everywhere = PartitionSpec()
    x = jax.ShapeDtypeStruct((256, 256), jnp.float32, sharding=NamedSharding(mesh, everywhere))
    mapped = jax.shard_map(both, mesh=mesh, in_specs=everywhere, out_specs=everywhere, check_vma=False)
    return jax.jit(mapped).lower(x, x)


def main(folder):
    programs = {
        "fsdp_tensor_v5e": train_step(
            mesh_of("v5e:2x4", fsdp=4, tensor=2),
            (None, "fsdp", "tensor"), (None, "tensor", "fsdp"), ("fsdp", None, None),
        ),
        "windowed_fsdp_v5e": train_step(
            mesh_of("v5e:2x4", fsdp=8), (None, "fsdp", None), (None, None, "fsdp"), ("fsdp", None, None)
        ),
        "fsdp_tensor_tpu7x": train_step(
            mesh_of("tpu7x:2x2x1", fsdp=4, tensor=2),
            (None, "fsdp", "tensor"), (None, "tensor", "fsdp"), ("fsdp", None, None),
        ),
        "two_slices_v5e": train_step(
            mesh_of("v5e:2x4", {"num_slices": 2}, data=2, fsdp=8),
            (None, "fsdp", None), (None, None, "fsdp"), ("data", "fsdp", None),
        ),
        "reduce_scatter_v5e": fsdp_update(mesh_of("v5e:2x2", fsdp=4)),
        "pallas_v5e": pallas_matmuls(mesh_of("v5e:2x2", x=4)),
    }  # fmt: skip
    for name, lowered in programs.items():
        module = lowered.compile().runtime_executable().hlo_modules()[0]
        data = gzip.compress(module.as_serialized_hlo_module_proto(), mtime=0)
        pathlib.Path(folder, f"{name}.pb.gz").write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1])
