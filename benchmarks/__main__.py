"""``python -m benchmarks [NAME ...]``: run all benchmarks, or those named."""

import importlib
import sys

NAMES = (
    "matching",
    "matching_growth",
    "scheduling",
    "simulation",
    "strategies",
    "interest",
    "lagging",
    "pipeline",
    "watch",
    "prediction",
    "prediction_samples",
    "coverage",
    "prediction_regimes",
    "faults",
    "ordering",
    "placement",
    "place",
    "protocol",
    "last_hop",
    "subscriptions",
    "status",
    "opening",
    "spans",
    "relocation",
    "live",
    "live_wakeups",
    "live_store",
    "live_restart",
    "live_copies",
    "live_cores",
    "live_faults",
    "live_ages",
    "live_overload",
    "live_lagging",
    "live_attacks",
    "live_scale_peers",
    "live_idle",
    "live_subscribing",
    "live_peers",
    "live_prediction",
    "profiles",
    "mqtt",
    "radio",
)


def main() -> None:
    for name in sys.argv[1:] or NAMES:
        if name not in NAMES:
            sys.exit(f"there is no benchmark {name!r}; there are: {', '.join(NAMES)}")
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
