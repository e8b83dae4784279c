"""Load on a running network, and its results: `tidings bench`."""

from tidings.live.bench._crew import run_bench
from tidings.live.bench._figures import Figures
from tidings.live.bench._load import DEFAULT_FILTER, BenchEvent, Load, default_events, filters_of

__all__ = ["DEFAULT_FILTER", "BenchEvent", "Figures", "Load", "default_events", "filters_of", "run_bench"]
