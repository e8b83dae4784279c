import subprocess
import sys

import pytest

import tidings.model


def test_every_public_name_is_there():
    for name in tidings.model.__all__:
        assert getattr(tidings.model, name).__class__ is not None
    assert dir(tidings.model) == sorted(tidings.model.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = tidings.model.Nonsense


@pytest.mark.parametrize("package", ["scenario", "topology", "generators", "units", "subscription"])
def test_all_is_complete(package):
    module = __import__(f"tidings.model.{package}", fromlist=["__all__"])
    assert all(hasattr(module, name) for name in module.__all__)
    assert module.__all__ == sorted(module.__all__)


def test_the_vocabulary_loads_no_heavy_library():
    code = (
        "import sys, tidings.model as m; m.Scenario, m.Topology, m.Subscription\n"
        "bad = {'numba', 'pyspark', 'scipy', 'matplotlib', 'networkx', 'pyarrow'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
