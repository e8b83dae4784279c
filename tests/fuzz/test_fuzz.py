"""Inputs that nobody would send: those that are kept, and very many that are made of them."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fuzz.mutation import CORPUS, corpus_of, mutated
from tests.fuzz.targets import TARGETS

RENEWED = 500
"""After so many inputs a target is made anew."""
MANY = {"frames": 10_000, "greeting": 2_000, "filters": 1_500, "network": 300, "mqtt": 500}
MILLION = {"frames": 780_000, "greeting": 100_000, "filters": 80_000, "network": 20_000, "mqtt": 20_000}


def feed(name: str, inputs: list[bytes]) -> None:
    """Give inputs to a target; what it cannot stand is told with all that came before."""
    target = TARGETS[name]()
    for place, data in enumerate(inputs):
        try:
            target(data)
        except Exception as error:
            said = "\n".join(repr(each) for each in inputs[max(place - 20, 0) : place + 1])
            raise AssertionError(
                f"{name}: {type(error).__name__}: {error}\nafter {place} inputs, the last:\n{said}"
            ) from error


def storm(name: str, seed: int, count: int) -> None:
    corpus = corpus_of(name)
    for first in range(0, count, RENEWED):
        feed(name, list(mutated(corpus, seed + first, min(RENEWED, count - first))))


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_kept_is_stood(name: str) -> None:
    assert len(corpus_of(name)) >= 10
    feed(name, corpus_of(name))


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs_are_stood(name: str) -> None:
    storm(name, 1, MANY[name])


@pytest.mark.full
@pytest.mark.parametrize("name", TARGETS)
def test_a_million_mutated_inputs_are_stood(name: str) -> None:
    assert sum(MILLION.values()) == 1_000_000
    storm(name, 1_000_000, MILLION[name])


def test_the_same_seed_gives_the_same_inputs() -> None:
    corpus = corpus_of("frames")
    assert list(mutated(corpus, 7, 50)) == list(mutated(corpus, 7, 50)) != list(mutated(corpus, 8, 50))


def test_what_fails_is_told_with_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(data: bytes) -> None:
        raise KeyError(data[0])

    monkeypatch.setitem(TARGETS, "frames", lambda: broken)
    with pytest.raises(AssertionError, match=r"frames: KeyError: 120\nafter 0 inputs, the last:\nb'x'"):
        feed("frames", [b"x"])


@pytest.mark.full
@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="atheris is not there: pip install 'tidings[fuzz]'"
)
@pytest.mark.parametrize("name", TARGETS)
def test_targets_can_be_fuzzed_by_coverage(name: str, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.fuzz", name, "-runs=300", str(tmp_path), str(CORPUS / name)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root / "src"), str(root)))}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert "DONE" in done.stderr
