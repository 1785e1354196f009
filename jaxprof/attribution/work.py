"""FLOPs and bytes of a whole step: what the compiler made, and what the trace shows to have run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from jaxprof.attribution.measures import OpMeasure
from jaxprof.attribution.op_table import executions_of
from jaxprof.hlo.op_cost import ModuleCosts, OpCost


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Matmul, convolution and attention FLOPs of one step on one device, the mean over devices."""

    by_dtype: dict[str, Fraction] = field(default_factory=dict)
    by_part: dict[str, Fraction] = field(default_factory=dict)
    """Recompute left out."""
    recompute_by_dtype: dict[str, Fraction] = field(default_factory=dict)

    @property
    def total(self) -> Fraction:
        return sum(self.by_dtype.values(), Fraction(0))

    @property
    def recompute(self) -> Fraction:
        return sum(self.recompute_by_dtype.values(), Fraction(0))


def compiled_work(costs: ModuleCosts) -> Work:
    """As the compiled loops say; where a count is a range, its lower end."""
    return _work(costs, lambda cost: Fraction(cost.executions.low))


def executed_work(costs: ModuleCosts, measures: Mapping[tuple[str, str], OpMeasure]) -> Work:
    """As the trace's occurrences say: an op that the trace does not show has not run."""

    def executions(cost: OpCost) -> Fraction:
        measure = measures.get((costs.module, cost.op))
        return measure.executions if measure is not None else Fraction(0)

    return _work(costs, executions)


def compiled_flops_range(costs: ModuleCosts) -> tuple[int, int | None]:
    """FLOPs of one step on one device between the least and the most that loops and branches allow; None: no limit."""
    if costs.flops is not None:
        return costs.flops.low, costs.flops.high
    low = sum(_flops(cost) * cost.executions.low for cost in costs.ops)
    if any(cost.executions.high is None for cost in costs.ops if cost.flops):
        return low, None
    return low, sum(_flops(cost) * (cost.executions.high or 0) for cost in costs.ops)


def other_flops(
    costs: ModuleCosts, measures: Mapping[tuple[str, str], OpMeasure], evidence: str | None
) -> Fraction | None:
    """Elementwise work and reductions of one step on one device; None where an op's executions are unknown."""
    return _sum(costs, measures, evidence, lambda cost: cost.other_flops)


def hbm_bytes(
    costs: ModuleCosts, measures: Mapping[tuple[str, str], OpMeasure], evidence: str | None
) -> tuple[Fraction | None, Fraction | None]:
    """(read, written) bytes of one step on one device; None where an op's executions are unknown."""
    return (
        _sum(costs, measures, evidence, lambda cost: cost.hbm_bytes_read),
        _sum(costs, measures, evidence, lambda cost: cost.hbm_bytes_written),
    )


def _work(costs: ModuleCosts, executions: Callable[[OpCost], Fraction]) -> Work:
    by_dtype, by_part, recompute = _Totals(), _Totals(), _Totals()
    for cost in costs.ops:
        count = executions(cost)
        for dtype, flops in cost.flops.items():
            by_dtype[dtype] += flops * count
            if cost.phase == "recompute":
                recompute[dtype] += flops * count
            else:
                by_part[cost.part] += flops * count
    return Work(by_dtype=dict(by_dtype), by_part=dict(by_part), recompute_by_dtype=dict(recompute))


class _Totals(dict[str, Fraction]):
    def __missing__(self, key: str) -> Fraction:
        return Fraction(0)


def _flops(cost: OpCost) -> int:
    return sum(cost.flops.values())


def _sum(
    costs: ModuleCosts,
    measures: Mapping[tuple[str, str], OpMeasure],
    evidence: str | None,
    each: Callable[[OpCost], int],
) -> Fraction | None:
    total = Fraction(0)
    for cost in costs.ops:
        if not (amount := each(cost)):
            continue
        executions = executions_of(cost, measures.get((costs.module, cost.op)), evidence)
        if executions is None:
            return None
        total += amount * executions
    return total
