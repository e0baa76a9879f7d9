"""Options and arguments of `slipway sweep`."""

from typing import Annotated

import typer

SweepArgument = Annotated[str, typer.Argument(metavar="SWEEP", help="Id of the sweep.")]
RangeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="NAME=RANGE",
        help="Values to try: uniform(0,1), loguniform(1e-4,1e-1), int(1,8), logint(1,1024), "
        "choice(2,4,8). A plain value is the same in all trials. Repeatable.",
    ),
]
MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME:GOAL",
        help="Metric and goal: accuracy:max, loss:min. Repeat it for several at the same time.",
    ),
]
ConstraintOption = Annotated[
    list[str] | None,
    typer.Option(
        "--constraint",
        metavar="METRIC<=BOUND",
        help="Bound of a logged metric: 'latency_ms<=20', 'recall>=0.9'. Repeatable.",
    ),
]
WarmStartOption = Annotated[
    list[str] | None,
    typer.Option(
        "--warm-start",
        metavar="SWEEP|FILTER",
        help="Learn from an earlier sweep, or from runs: 'metrics.loss < 1'. Repeatable.",
    ),
]
AlgorithmOption = Annotated[
    str | None,
    typer.Option(
        "--algorithm", help="random, grid, tpe, tpe-multivariate, qmc, cma-es, gp or nsga-ii."
    ),
]
ParallelOption = Annotated[
    int | None, typer.Option("--parallel", min=1, help="Trials that run at once.")
]
RetriesOption = Annotated[
    int | None,
    typer.Option("--retries", min=0, help="How often a failed trial is submitted again."),
]
SeedOption = Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the suggestions.")]
QuoteOption = Annotated[
    bool, typer.Option("--quote", help="Show the price without starting the sweep.")
]
SchedulerOption = Annotated[
    str | None,
    typer.Option("--scheduler", help="Stop worse trials early: asha, hyperband, median or none."),
]
MinValuesOption = Annotated[
    int | None,
    typer.Option("--min-values", min=1, help="Values of the metric before the first comparison."),
]
EtaOption = Annotated[
    int | None,
    typer.Option("--eta", min=2, help="asha, hyperband: the best of this many trials go on."),
]
