"""What this machine offers, found without starting JAX in this process: packages, devices, flags."""
