"""What a report's words and figures mean."""

from __future__ import annotations

PARTS = (
    ("compute", "compute", "an op bound by compute runs"),
    ("hbm", "HBM traffic", "an op bound by memory runs"),
    ("transfer", "transfer", "a collective moves data, nothing computes"),
    ("wait", "waiting", "a collective waits for its last participant"),
    ("host", "host", "infeed, copies, dispatch gaps"),
    ("idle", "idle", "nothing runs"),
)
"""Key in run.json's breakdown, name, meaning."""


def conventions() -> str:
    """What the figures mean, for those who compare them with others'."""
    return (
        "FLOPs are 2mnk a matmul, over all devices; peaks are dense, for the operands' dtype; MFU leaves recompute "
        "out, HFU counts what ran; times, bytes and memory are one device's, per step."
    )
