"""deploy/: what Prometheus, Grafana, compose and Kubernetes are given fits the brokers that it is for."""

import asyncio
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.live.conftest import Place, run, running, until

from tidings.live import connect, read_network
from tidings.live.configuration._config import Network
from tidings.rehearsal._ports import free_ports

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text("utf-8"))
METRIC = re.compile(r"\b(?:tidings|process)_[a-z0-9_]+")
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (apt-get install prometheus)")


def expressions() -> list[str]:
    """What the dashboard and the rules ask Prometheus for."""
    shown = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    rules = [rule["expr"] for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for rule in group["rules"]]
    return [*shown, *rules]


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def asked(port: int, path: str) -> tuple[int, str]:
    return await asyncio.get_running_loop().run_in_executor(None, fetch, f"http://127.0.0.1:{port}{path}")


def with_metrics(network: Network, name: str, port: int) -> Network:
    text = network.path.read_text("utf-8")
    network.path.write_text(
        text.replace(f'name = "{name}"\n', f'name = "{name}"\nmetrics = "127.0.0.1:{port}"\n'), "utf-8"
    )
    return read_network(network.path)


def test_every_metric_that_is_asked_for_is_served_and_ready_says_whether_events_are_accepted(place: Place) -> None:
    async def work() -> None:
        (port,) = free_ports(1)
        network = with_metrics(place.write("a", "b"), "a", port)
        async with running(network) as nodes, connect(place.address("a"), name="s") as s:
            events = await s.subscribe("n >= 0")
            await s.publish({"n": 1})
            await anext(events)
            assert await asked(port, "/ready") == (200, "ready\n")
            _, page = await asked(port, "/metrics")
            served = set(METRIC.findall(page))
            wanted = {name for expression in expressions() for name in METRIC.findall(expression)}
            assert len(wanted) > 15
            assert wanted - served == set()
            # It drains for as long as something waits for a connected reader that takes nothing more.
            await s.subscribe("n > 1", keep=lambda _: False)
            for n in range(2, 40):
                await s.publish({"n": n})
            await until(nodes["a"]._is_handing_over)
            nodes["a"].stop()
            assert await asked(port, "/ready") == (503, "draining\n")

    run(work())


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        here = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not here & cells, panel["title"]
        assert at["x"] + at["w"] <= 24
        cells |= here
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@needs_promtool
def test_promtool_accepts_the_rules_their_tests_and_every_panel(tmp_path: Path) -> None:
    panels = [
        {"record": f"panel:{number}", "expr": target.replace("$__rate_interval", "1m")}
        for number, target in enumerate(expressions())
    ]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": panels}]}), "utf-8")
    for command in (
        ["check", "config", str(DEPLOY / "prometheus" / "prometheus.yml")],
        ["check", "rules", str(RULES), str(tmp_path / "panels.yml")],
        ["test", "rules", str(DEPLOY / "prometheus" / "rules_test.yml")],
    ):
        ran = subprocess.run([str(PROMTOOL), *command], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def with_tokens(folder: Path, text: str) -> Network:
    """The network of a file whose tokens are made beside it."""
    for name in re.findall(r'token_file = "(.*)"', text):
        token = folder / "secrets" / Path(name).name
        token.parent.mkdir(exist_ok=True)
        token.write_text("a token of forty-three characters or so....", "utf-8")
        token.chmod(0o600)
        text = text.replace(name, str(token))
    (folder / "network.toml").write_text(text, "utf-8")
    return read_network(folder / "network.toml")


def test_the_network_of_compose_is_that_of_its_services(tmp_path: Path) -> None:
    network = with_tokens(tmp_path, (DEPLOY / "compose" / "network.toml").read_text("utf-8"))
    services = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text("utf-8"))["services"]
    brokers = {name: each for name, each in services.items() if each.get("command", [""])[0] == "broker"}
    assert brokers.keys() == network.brokers.keys()
    for name, service in brokers.items():
        broker = network.broker(name)
        assert (broker.reached_at.host, service["command"][-1]) == (name, name)
        assert service["ports"][0].endswith(f":{broker.listen.port}")
        assert broker.metrics is not None
        assert f":{broker.metrics.port}/ready" in service["healthcheck"]["test"][-1]
    targets = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))["scrape_configs"][0]
    scraped = {f"{name}:{each.metrics.port}" for name, each in network.brokers.items() if each.metrics is not None}
    assert set(targets["static_configs"][0]["targets"]) == scraped
    for service in services.values():
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert not source.startswith(".") or (DEPLOY / "compose" / source).exists(), volume


def test_the_network_of_kubernetes_is_that_of_its_pods(tmp_path: Path) -> None:
    kinds: dict[str, list[dict[str, Any]]] = {}
    for each in yaml.safe_load_all((DEPLOY / "kubernetes" / "tidings.yaml").read_text("utf-8")):
        kinds.setdefault(each["kind"], []).append(each)
    (config,), (pods,) = kinds["ConfigMap"], kinds["StatefulSet"]
    network = with_tokens(tmp_path, config["data"]["network.toml"])
    name, spec = pods["metadata"]["name"], pods["spec"]
    assert [*network.brokers] == [f"{name}-{number}" for number in range(spec["replicas"])]
    for broker in network.brokers.values():
        assert broker.reached_at.host == f"{broker.name}.{spec['serviceName']}"
    (container,) = spec["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    first = next(iter(network.brokers.values()))
    assert first.metrics is not None
    assert ports == {"broker": first.listen.port, "metrics": first.metrics.port}
    assert container["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "metrics"}
    waits_s = int(container["lifecycle"]["preStop"]["exec"]["command"][1]) + network.document.network.drain_s
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > waits_s
    assert spec["serviceName"] in {service["metadata"]["name"] for service in kinds["Service"]}
