"""Makes the GPU modules of this folder with the real compiler and no GPU: ``python make_gpu.py FOLDER``.

Needs ``pip install jax==0.12.0.1 jax-cuda12-plugin==0.12.0.1 jax-cuda12-pjrt==0.12.0.1 nvidia-cuda-nvcc-cu12`` in an
environment of its own. Matmuls become cuBLAS calls, as in most autotuned programs.
"""

import gzip
import os
import pathlib
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import make_tpu
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh

H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: 3352300000000 l2_cache_size: 52428800 device_memory_size: 84942979072
  registers_per_core_limit: 65536 registers_per_block_limit: 65536 device_address_bits: 64
  pcie_bandwidth: 68719476736 collective_memory_granularity: 2097152
  cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }
  device_vendor: "NVIDIA Corporation" name: "NVIDIA H100 80GB HBM3" runtime_version: "12.9.0"
  driver_version: "13.0.0" compile_time_toolkit_version: "12.9.0" dnn_version: "9.10.2"
  device_interconnect_info { active_links: 18 }
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 2 }
runtime_version { major: 12 minor: 9 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""


def mesh_of(**axes):
    topology = topologies.get_topology_desc(topology_name="", platform="cuda", target_config=H100, topology="1x1x8")
    return Mesh(np.array(topology.devices).reshape(tuple(axes.values())), tuple(axes))


def convolution_gradients(mesh):
    """A convolution of bf16[1,64,64,16] by bf16[3,3,16,32], and both its gradients."""

    def loss(x, w):
        y = jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jnp.sum(y**2).astype(jnp.float32)

    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    x, w = (jax.ShapeDtypeStruct(dims, jnp.bfloat16, sharding=everywhere) for dims in ((1, 64, 64, 16), (3, 3, 16, 32)))
    return jax.jit(jax.value_and_grad(loss, (0, 1))).lower(x, w)


def main(folder):
    programs = {
        "fsdp_tensor_h100": make_tpu.train_step(
            mesh_of(fsdp=4, tensor=2), (None, "fsdp", "tensor"), (None, "tensor", "fsdp"), ("fsdp", None, None)
        ),
        "convolution_h100": convolution_gradients(mesh_of(x=8)),
    }
    for name, lowered in programs.items():
        compiled = lowered.compile(compiler_options={"xla_gpu_enable_triton_gemm": False, "xla_gpu_autotune_level": 0})
        module = compiled.runtime_executable().hlo_modules()[0]
        data = gzip.compress(module.as_serialized_hlo_module_proto(), mtime=0)
        pathlib.Path(folder, f"{name}.pb.gz").write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1])
