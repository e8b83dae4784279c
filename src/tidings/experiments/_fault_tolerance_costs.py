"""What the traps and the lag of soft state cost, on the path of three brokers that has check values.

Brokers .92, .94 and .91, links .99, a period of 60,000 s, a lifetime of 3,600 s, refreshed every 600 s. Without lag
periodic re-subscription gives .771307 (equation 3) and buffering .856083 (equation 4).
"""

from typing import Final

from msgspec.structs import replace

from tidings.experiments._claims import Claim
from tidings.model.scenario import Faults, Scenario
from tidings.simulation import simulate

__all__ = ["cost_claims"]

EQUATION_3, EQUATION_4 = 0.771307, 0.856083
BATCHES: Final = 8

_TOML: Final = """
duration = "{days} d"
topology = {{ kind = "explicit", brokers = ["a", "b", "c"], links = [["a", "b"], ["b", "c"]] }}
[links]
failures = {{ availability = 0.99, period = "60000 s" }}
[brokers]
failures = {{ availability = 0.92, period = "60000 s" }}
[[broker]]
name = "b"
failures = {{ availability = 0.94, period = "60000 s" }}
[[broker]]
name = "c"
failures = {{ availability = 0.91, period = "60000 s" }}
[[publishers]]
name = "publisher"
at = "a"
interval = "300 s"
lifetime = "3600 s"
[[subscribers]]
name = "subscriber"
at = "c"
filter = "TRUE"
"""

_CASES: Final[dict[str, tuple[Faults, float | None, str]]] = {
    "path.periodic": (Faults(scheme="periodic", refresh_s=30.0), EQUATION_3, "refreshed every 30 s: nearly equation 3"),
    "path.buffer": (Faults(scheme="buffer", refresh_s=30.0), EQUATION_4, "refreshed every 30 s: nearly equation 4"),
    "lag.periodic": (Faults(scheme="periodic"), EQUATION_3, "refreshed every 600 s, which equation 3 leaves out"),
    "lag.buffer": (Faults(scheme="buffer"), EQUATION_4, "refreshed every 600 s, which equation 4 leaves out"),
    "trap.early": (Faults(scheme="buffer", ack="early"), None, "acknowledged before the forwarding set is known"),
    "trap.volatile": (Faults(scheme="buffer", queues="volatile"), None, "what was stored is lost at a crash"),
    "trap.both": (Faults(scheme="buffer", ack="early", queues="volatile"), None, "both"),
    "trap.timeout": (Faults(scheme="buffer", timeout_s=1800.0), None, "a time-out of 1,800 s instead of a day"),
}


def cost_claims(days: float) -> list[Claim]:
    """The reliability of the path under each case, with the standard error over batches as its sd."""
    network = Scenario.parse(_TOML.format(days=days / BATCHES), "path").expand()
    claims = []
    for name, (faults, paper, note) in _CASES.items():
        volatile = replace(faults, tables="volatile")  # as in the paper
        chosen = replace(network, policies=replace(network.policies, faults=volatile))
        shares = [simulate(replace(chosen, seed=seed)).delivery_rate or 0.0 for seed in range(BATCHES)]
        mean = sum(shares) / BATCHES
        error = (sum((share - mean) ** 2 for share in shares) / (BATCHES - 1) / BATCHES) ** 0.5
        claims.append(Claim(id=name, paper=paper, measured=mean, unit="reliability", sd=error, note=note))
    return claims
