"""Load for a running network, and what became of it: `tidings bench`."""

from tidings.live.bench._crew import run_bench
from tidings.live.bench._figures import Figures
from tidings.live.bench._load import BenchEvent, Load, default_events, filters_of

__all__ = ["BenchEvent", "Figures", "Load", "default_events", "filters_of", "run_bench"]
