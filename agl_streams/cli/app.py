"""The command and its groups; the modules beside this one add what stands below them."""

from __future__ import annotations

import typer

app = typer.Typer(
    help="Durable rollouts, attempts and spans for training agents, in Redis streams.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # an error of ours is one line; anything else keeps its whole traceback
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench_app = typer.Typer(help="Benchmarks, printed as ratios against the raw engine.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")
