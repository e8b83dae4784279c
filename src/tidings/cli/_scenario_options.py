"""The options of commands that read a scenario, or the profiles of a network."""

from pathlib import Path
from typing import Annotated

import typer

from tidings.model.policies import DEFAULT_SCHEME, DEFAULT_STRATEGY, Scheme, StrategyName

__all__ = ["ProfileScheme", "ProfileStrategy", "ScenarioFile", "ScenarioOrProfiles", "Seed"]

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario in TOML.", show_default=False)]
ScenarioOrProfiles = Annotated[
    Path,
    typer.Argument(
        metavar="SCENARIO|PROFILES", help="A scenario in TOML, or the directory of a pipeline run.", show_default=False
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", min=0, help="Use this seed instead of the scenario's.", show_default=False)
]
ProfileStrategy = Annotated[
    StrategyName | None,
    typer.Option("--strategy", help=f"With profiles: the strategy in force ({DEFAULT_STRATEGY}).", show_default=False),
]
ProfileScheme = Annotated[
    Scheme | None,
    typer.Option("--scheme", help=f"With profiles: the scheme in force ({DEFAULT_SCHEME}).", show_default=False),
]
