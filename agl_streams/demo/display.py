"""What a person sees: progress while it runs, the reward curve, and a closing table."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

from matplotlib.figure import Figure
from rich.box import SIMPLE
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agl_streams.demo.kill import Killing, Recovery
from agl_streams.demo.learner import Step
from agl_streams.demo.summary import LAST_AT_LEAST, Summary
from agl_streams.errors import ConfigError

ROWS: Final = 10
WIDEST_COLUMN: Final = 3
AXIS_WIDTH: Final = 5
FRAME_WIDTH: Final = 4  # of the panel, with its padding
EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
REWARD_STYLE: Final = "green"
PICTURE_INCHES: Final = (8, 4.5)
PICTURE_DPI: Final = 120


def curve(rewards: Sequence[float], batches: int, width: int) -> Text:
    """The reward of each batch as a column of blocks, with an axis from 0 to 1.

    Args:
        batches: how many there will be.
        width: of the whole, in characters; where the batches are too many, the newest are shown.
    """
    places = max(width - AXIS_WIDTH, 1)
    column = min(max(places // batches, 1), WIDEST_COLUMN)
    shown = min(batches, places // column)
    first = max(len(rewards) - shown, 0)
    text = Text()
    for row in range(ROWS - 1, -1, -1):
        text.append(f"{(row + 1) / ROWS:.1f} ┤" if row % 2 else "    │")
        text.append("".join(_cell(reward * ROWS - row) * column for reward in rewards[first:]), REWARD_STYLE)
        text.append("\n")
    text.append("0.0 └" + "─" * column * shown + "\n")
    left, right = f"batch {first + 1}", str(first + shown)
    text.append(" " * AXIS_WIDTH + left + right.rjust(column * shown - len(left)))
    return text


def _cell(filled: float) -> str:
    eighths = len(EIGHTHS) - 1
    return EIGHTHS[round(min(max(filled, 0.0), 1.0) * eighths)]


class Screen:
    """Live progress on a terminal, a line for each batch where there is none.

    With ``silent`` nothing of this is written: standard output is to have JSON and nothing else.
    """

    def __init__(self, batches: int, batch_size: int, *, silent: bool) -> None:
        self._console = Console(quiet=silent)
        self._errors = Console(stderr=True, soft_wrap=True, highlight=False)
        self._batches = batches
        self._batch_size = batch_size
        self._ready: list[str] = []
        self._rewards: list[float] = []
        self._panel: RenderableType = ""
        self._kill_note = ""
        # What is logged meanwhile goes above the display, if both are on the same terminal.
        together = sys.stderr.isatty()
        self._live = Live(console=self._console, auto_refresh=False, redirect_stderr=together)

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.quiet:
            self._live.start()
            self._show(Text("starting the engine …"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def ready(self, name: str) -> None:
        """A process is ready."""
        self._ready.append(name)
        self._show(Text(f"ready: {', '.join(self._ready)} …"))

    def step(self, step: Step, rate: float) -> None:
        """A batch is done.

        Args:
            rate: rollouts per second so far.
        """
        self._rewards.append(step.mean_reward)
        done = f"batch {len(self._rewards)}/{self._batches}"
        reward = f"mean reward {step.mean_reward:.2f}"
        title = f"{done} of {self._batch_size} rollouts · policy version {step.version}"
        self._panel = Panel(
            curve(self._rewards, self._batches, self._console.width - FRAME_WIDTH),
            title=title,
            subtitle=f"{reward} · {rate:.0f} rollouts/s",
            expand=False,
        )
        self._show(self._progress())
        self._line(f"{done} · {reward} · policy version {step.version}")

    def killed(self, killing: Killing, lease_s: float) -> None:
        """A runner was killed on purpose."""
        count = len(killing.rollout_ids)
        held = f"{count} rollout{'s' if count > 1 else ''}"
        self._kill_note = f"{killing.worker_id} was killed while it held {held}; leases last {lease_s:g} s"
        self._show(self._progress())
        self._line(self._kill_note)

    def close(self, summary: Summary, broken: Sequence[str]) -> None:
        """The closing tables; promises that were broken go to standard error."""
        self._console.print(_numbers(summary))
        if summary.recoveries:
            self._console.print(_recoveries(summary.recoveries))
        for line in broken:
            self._errors.print(f"[bold red]broken promise:[/] {escape(line)}")

    def left(self, picture: Path, namespace: str | None) -> None:
        """What the demo leaves behind: a picture, and on a server that is not its own a namespace."""
        self._console.print(f"The reward curve is drawn in {picture}", soft_wrap=True)
        if namespace:
            self._console.print(f"The records are in the namespace {namespace}", soft_wrap=True)

    def stopped(self) -> None:
        """A signal has ended the demo early."""
        self._errors.print("stopped before its end")

    def failed(self, notes: Iterable[str]) -> None:
        """The demo has failed: what there is to tell about it, on standard error."""
        for note in notes:
            self._errors.print(escape(note))

    def _progress(self) -> RenderableType:
        note = [Text(self._kill_note, style="yellow")] if self._kill_note else []
        return Group(self._panel, *note)

    def _show(self, what: RenderableType) -> None:
        if self._live.is_started:
            self._live.update(what, refresh=True)

    def _line(self, text: str) -> None:
        """Tell of progress where there is no terminal for a live display."""
        if not self._live.is_started:
            self._console.print(text, highlight=False, soft_wrap=True)


def _numbers(summary: Summary) -> RenderableType:
    table = Table(show_header=False, title="what the store says", title_justify="left", box=SIMPLE)
    table.add_column()
    table.add_column(justify="right")
    captures = summary.complete_captures + summary.incomplete_captures
    share = f" ({summary.complete_captures / captures:.0%})" if captures else ""
    rows = {
        "mean reward, first batch": f"{summary.first_reward:.2f}",
        "mean reward, last batch": f"{summary.last_reward:.2f}",
        "rollouts": f"{summary.rollouts:,}",
        "attempts": f"{summary.attempts:,}",
        "spans": f"{summary.spans:,}",
        "model calls": f"{summary.model_calls:,}",
        "tokens": f"{summary.tokens:,}",
        "complete captures": f"{summary.complete_captures:,} of {captures:,}{share}",
        "retries": f"{summary.retries:,}",
        "lost": f"{summary.lost:,}",
        "doubled": f"{summary.doubled:,}",
        "rollouts/s": f"{summary.rollouts / summary.seconds:,.0f}",
        "seconds": f"{summary.seconds:.1f}",
    }
    if summary.killing:
        rows["seconds from the kill to the last new attempt"] = f"{summary.recovered_s:.1f}"
    for what, value in rows.items():
        table.add_row(what, value)
    return table


def _recoveries(recoveries: Iterable[Recovery]) -> RenderableType:
    table = Table(title="what the killed runner held", title_justify="left", box=SIMPLE)
    for heading in ("rollout", "lost by", "because", "repeated by", "after", "which"):
        table.add_column(heading)
    for recovery in recoveries:
        lost, retried = recovery.lost, recovery.retried
        again = (retried.worker_id, f"{recovery.after_s:.1f} s", retried.status) if retried else ("nobody", "", "")
        table.add_row(lost.rollout_id, lost.worker_id, recovery.reason, *again)
    return table


def check_picture(picture: Path) -> None:
    """Find out at the beginning what would stop the picture from being drawn at the end.

    Raises:
        ConfigError: there is no picture format of that name.
    """
    formats = sorted(Figure().canvas.get_supported_filetypes())
    if picture.suffix.removeprefix(".").lower() not in formats:
        raise ConfigError(f"--picture {picture}: the name must end in one of {', '.join(formats)}")


def draw(rewards: Sequence[float], picture: Path) -> None:
    """Draw the reward curve as a picture file; its ending chooses the format.

    Raises:
        ConfigError: the file cannot be written.
    """
    figure = cast("Any", Figure(figsize=PICTURE_INCHES, dpi=PICTURE_DPI, layout="tight"))
    axes = figure.subplots()
    axes.plot(range(1, len(rewards) + 1), rewards, marker="o", markersize=3)
    axes.axhline(LAST_AT_LEAST, linestyle=":", linewidth=1, color="grey", label="promised for the last batch")
    axes.legend(loc="lower right")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="batch", ylabel="mean reward", ylim=(0, 1.02), title="agl-streams demo: the policy learns")
    axes.grid(visible=True, alpha=0.3)
    try:
        figure.savefig(picture)
    except OSError as error:
        raise ConfigError(f"--picture {picture} cannot be written: {error}") from error
