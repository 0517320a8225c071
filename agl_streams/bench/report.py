"""What a benchmark prints: one row per claim, as a table or as JSON."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

from agl_streams import clock

MS_PER_S: Final = 1000.0
US_PER_S: Final = 1_000_000
THOUSAND: Final = 1000  # from here a value is printed in full


@dataclass(frozen=True, slots=True)
class Row:
    """One measured claim.

    Attributes:
        id: the target's name (``P1``), or ``-`` for a figure without a target.
        what: what was measured, with its unit.
        value: the median; None where it could not be measured here, and ``what`` says why.
        target: the bound, or None.
        better: whether the value must be at least or at most the target.
        detail: the raw figures behind a ratio.
    """

    id: str
    what: str
    value: float | None
    target: float | None = None
    better: Literal["high", "low"] = "high"
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether the target is met; true without one, and where nothing was measured."""
        if self.target is None or self.value is None:
            return True
        return self.value >= self.target if self.better == "high" else self.value <= self.target


async def seconds_of(work: Callable[[], Awaitable[object]]) -> float:
    """How long one piece of work takes, in seconds."""
    start = clock.monotonic_s()
    await work()
    return clock.monotonic_s() - start


async def interleaved(
    pairs: int, first: Callable[[], Awaitable[object]], second: Callable[[], Awaitable[object]]
) -> tuple[float, float, float]:
    """Measure two pieces of work in alternation, see `paired`."""
    return await paired(pairs, lambda: seconds_of(first), lambda: seconds_of(second))


async def paired(
    pairs: int, first: Callable[[], Awaitable[float]], second: Callable[[], Awaitable[float]]
) -> tuple[float, float, float]:
    """Take two measurements in alternation, so that drift of the machine meets both.

    Args:
        first, second: each takes one measurement and gives its seconds.

    Returns:
        Median of (seconds of first / seconds of second), and the median seconds of each.
    """
    ratios: list[float] = []
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(pairs):
        a, b = await first(), await second()
        ratios.append(a / b)
        times[0].append(a)
        times[1].append(b)
    return statistics.median(ratios), statistics.median(times[0]), statistics.median(times[1])


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the values lies."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def show(title: str, rows: Sequence[Row], *, json_output: bool) -> int:
    """Print the rows; returns the exit code: 0 when every target is met, else 1."""
    if json_output:
        data = [{key: value for key, value in asdict(row).items() if key != "better"} | {"ok": row.ok} for row in rows]
        sys.stdout.write(json.dumps(data) + "\n")
    else:
        _table(title, rows)
    return 0 if all(row.ok for row in rows) else 1


def _table(title: str, rows: Sequence[Row]) -> None:
    from rich.console import Console  # only a person's terminal needs it, and it takes a while to import
    from rich.table import Table  # as above

    table = Table(title=title, title_justify="left")
    for name in ("", "what", "value", "target", "", "measured"):
        table.add_column(name, justify="right" if name in ("value", "target") else "left")
    for row in rows:
        bound = "" if row.target is None else f"{'≥' if row.better == 'high' else '≤'} {row.target:g}"
        mark = "" if row.target is None or row.value is None else ("met" if row.ok else "MISSED")
        value = "" if row.value is None else f"{row.value:,.3g}" if row.value < THOUSAND else f"{row.value:,.0f}"
        table.add_row(row.id, row.what, value, bound, mark, row.detail)
    Console().print(table)
