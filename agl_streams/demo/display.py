"""What a person sees: progress while it runs, the reward curve, and a closing table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

import matplotlib as mpl

mpl.use("agg")  # before pyplot: there may be no screen

from matplotlib import pyplot
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agl_streams.demo.summary import LAST_AT_LEAST, Summary

ROWS: Final = 10
COLUMN_WIDTH: Final = 2
EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
PICTURE_INCHES: Final = (8, 4.5)
PICTURE_DPI: Final = 120


def curve(rewards: Sequence[float], batches: int) -> Text:
    """The reward of each batch as a column of blocks, with an axis from 0 to 1."""
    lines: list[str] = []
    for row in range(ROWS - 1, -1, -1):
        label = f"{(row + 1) / ROWS:.1f} ┤" if row % 2 else "    │"
        cells = (_cell(reward * ROWS - row) * COLUMN_WIDTH for reward in rewards)
        lines.append(label + "".join(cells))
    lines.append("0.0 └" + "─" * COLUMN_WIDTH * batches)
    lines.append(f"     batch 1{'':{max(COLUMN_WIDTH * batches - 14, 1)}}{batches:>5}")
    return Text("\n".join(lines))


def _cell(filled: float) -> str:
    eighths = len(EIGHTHS) - 1
    return EIGHTHS[round(min(max(filled, 0.0), 1.0) * eighths)]


class Screen:
    """Live progress on a terminal; silent when there is to be JSON on standard output."""

    def __init__(self, batches: int, batch_size: int, *, silent: bool) -> None:
        self._console = Console(quiet=silent)
        self._batches = batches
        self._batch_size = batch_size
        self._rewards: list[float] = []
        self._note = ""
        self._live = Live(Text("starting the processes …"), console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def step(self, reward: float, version: int, rate: float) -> None:
        """A batch is done.

        Args:
            rate: rollouts per second so far.
        """
        self._rewards.append(reward)
        done = len(self._rewards)
        title = f"batch {done}/{self._batches} · {self._batch_size} rollouts each · policy version {version}"
        foot = f"mean reward {reward:.2f} · {rate:.0f} rollouts/s{self._note}"
        self._live.update(
            Panel(curve(self._rewards, self._batches), title=title, subtitle=foot, expand=False), refresh=True
        )

    def killed(self, worker_id: str, rollouts: int) -> None:
        """A runner was killed on purpose."""
        self._note = f" · {worker_id} killed while it held {rollouts}"

    def close(self, summary: Summary, picture: Path, broken: Sequence[str]) -> None:
        """The closing table."""
        table = Table(title="what the store says", title_justify="left", show_header=False)
        table.add_column()
        table.add_column(justify="right")
        rows = {
            "mean reward, first batch": f"{summary.first_reward:.2f}",
            "mean reward, last batch": f"{summary.last_reward:.2f}",
            "rollouts": f"{summary.rollouts:,}",
            "attempts": f"{summary.attempts:,}",
            "spans": f"{summary.spans:,}",
            "model calls": f"{summary.model_calls:,}",
            "tokens": f"{summary.tokens:,}",
            "complete captures": f"{_percent(summary.complete_captures, summary.incomplete_captures)}",
            "retries": f"{summary.retries:,}",
            "lost": f"{summary.lost:,}",
            "doubled": f"{summary.doubled:,}",
            "rollouts/s": f"{summary.rollouts / summary.seconds:,.0f}",
            "seconds": f"{summary.seconds:.1f}",
        }
        if summary.recovered_seconds is not None:
            held = f"{summary.killed_rollouts} rollouts of {summary.killed_runner}"
            rows[f"recovered after the kill ({held})"] = f"{summary.recovered_seconds:.1f} s"
        for what, value in rows.items():
            table.add_row(what, value)
        self._console.print(table)
        self._console.print(f"The reward curve is drawn in {picture}")
        for line in broken:
            self._console.print(f"[bold red]broken promise:[/] {line}")


def _percent(complete: int, incomplete: int) -> str:
    total = complete + incomplete
    return "none" if total == 0 else f"{complete:,} of {total:,} ({complete / total:.0%})"


def draw(rewards: Sequence[float], picture: Path) -> None:
    """Draw the reward curve as a picture file; its ending chooses the format."""
    figure, axes = cast("tuple[Any, Any]", pyplot.subplots(figsize=PICTURE_INCHES, dpi=PICTURE_DPI))
    axes.plot(range(1, len(rewards) + 1), rewards, marker="o", markersize=3)
    axes.axhline(LAST_AT_LEAST, linestyle=":", linewidth=1, color="grey")
    axes.set(xlabel="batch", ylabel="mean reward", ylim=(0, 1.02), title="agl-streams demo: the policy learns")
    axes.grid(visible=True, alpha=0.3)
    figure.tight_layout()
    figure.savefig(picture)
    pyplot.close(figure)
