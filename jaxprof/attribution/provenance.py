"""How each figure of run.json is known: measured, compiled, by formula, or assumed."""

from __future__ import annotations

from jaxprof.attribution import op_table
from jaxprof.attribution.summary import Joined


def provenance(joined: Joined) -> dict[str, str]:
    """By dotted key of run.json; a missing key has what its parent says. Columns of the op table are ``ops.NAME``.

    Peaks have the provenance of the hardware book or of the calibration that gave them. A figure made of several has
    the one that is most specific to this run: MFU is measured, by a formula's FLOPs and a published peak.
    """
    time = "formula" if joined.evidence == "predicted" else "measured"
    peaks = joined.device.provenance if joined.device else "assumed"
    return {
        "step_time_s": time,
        "step_time_bounds_s": "formula",
        "roofline_s": "formula",
        "tokens_per_s_per_device": time,
        "timing": "measured",
        "compile": "measured",
        "model": "formula",
        "target": peaks,
        "flops": "compiled",
        "flops.model_causal": "formula",
        "flops.model_full": "formula",
        "flops.executed": time,
        "mfu": time,
        "mfu_full": time,
        "hfu": time,
        "hfu_by_peak": time,
        "hbm_bytes": "compiled",
        "breakdown_s": time,
        "breakdown_by_device_s": time,
        "overlapped_collective_s": time,
        "unexplained_s": time,
        "waterfall_s": time,
        "collectives": "compiled",
        "collectives.executions": "compiled" if joined.evidence is None else time,
        "collectives.wire_bytes": "formula",
        "collectives.link": "assumed",
        "collectives.link_time_s": "formula",
        "collectives.time_s": time,
        "collectives.exposed_s": time,
        "collectives.wait_s": time,
        "collectives.bus_bytes_per_s": time,
        "memory": "compiled",
        "memory.capacity_bytes": peaks,
        "xla": "compiled",
        "environment": "measured",
        **{f"ops.{column}": known for column, known in op_table.PROVENANCE.items()},
    }
