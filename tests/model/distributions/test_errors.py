"""A bad distribution is refused with its name, the field, the value and the remedy; a decoder adds the place."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from tidings.errors import ConfigurationError
from tidings.model.distributions import (
    DelayDistribution,
    Deterministic,
    Discrete,
    Distribution,
    DistributionError,
    Empirical,
    Exponential,
    Hypoexponential,
    LogNormal,
    PhaseType,
    Replay,
    ShiftedGamma,
    TruncatedNormal,
    Uniform,
    Weibull,
    Zipf,
    ks_distance,
)
from tidings.model.distributions._replay import REPLAYED_MAX

NAN = float("nan")

BAD: list[tuple[Callable[[], object], list[str]]] = [
    (lambda: Deterministic(value=-1.0), ["deterministic", "`value`", "-1.0", "write the constant"]),
    (lambda: Exponential(scale=0.0), ["exponential", "`mean`", "`scale`", "0.0", "mean = 0.002"]),
    (lambda: Exponential(scale=NAN), ["exponential", "nan"]),
    (lambda: Exponential(scale="2"), ["exponential", "'2'"]),
    (lambda: Exponential(scale=True), ["exponential", "True"]),
    (lambda: Exponential(scale=None), ["exponential", "None"]),
    (lambda: Uniform(low=3.0, high=1.0), ["uniform", "`high`", "low = 3.0", "1.0", "swap"]),
    (lambda: Uniform(low=1.0, high=1.0), ["uniform", "deterministic"]),
    (lambda: Uniform(low=-1.0, high=1.0), ["uniform", "`low`", "-1.0"]),
    (lambda: TruncatedNormal(location=-75.0, scale=20.0), ["normal", "`mean`", "-75.0", "untruncated"]),
    (lambda: TruncatedNormal(location=75.0, scale=0.0), ["normal", "`sd`", "0.0", "deterministic"]),
    (lambda: ShiftedGamma(shift=-1.0, shape=1.0, scale=1.0), ["shifted-gamma", "`shift`", "-1.0"]),
    (lambda: ShiftedGamma(shift=0.0, shape=0.0, scale=1.0), ["shifted-gamma", "`shape`"]),
    (lambda: ShiftedGamma(shift=0.0, shape=1.0, scale=np.inf), ["shifted-gamma", "`scale`", "inf"]),
    (lambda: LogNormal(median=0.0, sigma=1.0), ["log-normal", "`median`"]),
    (lambda: LogNormal(median=1.0, sigma=11.0), ["log-normal", "`sigma`", "<= 10", "11.0"]),
    (lambda: LogNormal(median=1.0, sigma=1.0, low=2.0, high=1.0), ["log-normal", "`high`", "low = 2.0"]),
    (lambda: LogNormal(median=1.0, sigma=1.0, low=-2.0), ["log-normal", "`low`", "-2.0"]),
    (lambda: LogNormal(median=1.0, sigma=1.0, high=NAN), ["log-normal", "`high`", "nan"]),
    (lambda: Weibull(shape=0.0, scale=1.0), ["weibull", "`shape`", "0.02"]),
    (lambda: Weibull(shape=1.0, scale=-1.0), ["weibull", "`scale`", "-1.0"]),
    (lambda: Hypoexponential(rates=()), ["hypoexponential", "`rates`", "at least 1"]),
    (lambda: Hypoexponential(rates=(1.0, 0.0)), ["hypoexponential", "position 1", "0.0"]),
    (lambda: Hypoexponential(rates=(1.0, NAN)), ["hypoexponential", "position 1", "nan"]),
    (lambda: Hypoexponential(rates=5.0), ["hypoexponential", "a list", "5.0"]),
    (lambda: Hypoexponential.erlang(phases=0, rate=1.0), ["hypoexponential", "`phases`", "0"]),
    (lambda: Hypoexponential.fit([1.0, 2.0], phases=0), ["hypoexponential", "`phases`", "0"]),
    (lambda: PhaseType(alpha=(), sub_generator=()), ["phase-type", "`alpha`"]),
    (lambda: PhaseType(alpha=(0.5, 0.4), sub_generator=((-1.0, 0.0), (0.0, -1.0))), ["`alpha`", "sum to 1", "0.4"]),
    (lambda: PhaseType(alpha=(1.5, -0.5), sub_generator=((-1.0, 0.0), (0.0, -1.0))), ["`alpha`", "-0.5"]),
    (lambda: PhaseType(alpha=(1.0,), sub_generator=((-1.0, 0.0), (0.0, -1.0))), ["`sub_generator`", "1 x 1"]),
    (lambda: PhaseType(alpha=(1.0, 0.0), sub_generator=((-1.0, 1.0), (0.0,))), ["`sub_generator`", "2 x 2"]),
    (lambda: PhaseType(alpha=(1.0,), sub_generator=((NAN,),)), ["`sub_generator`", "finite"]),
    (lambda: PhaseType(alpha=(1.0,), sub_generator=((1.0,),)), ["`sub_generator`", "diagonal", "row 0"]),
    (lambda: PhaseType(alpha=(1.0, 0.0), sub_generator=((-1.0, 2.0), (0.0, -1.0))), ["row sums", "row 0"]),
    (lambda: PhaseType(alpha=(1.0, 0.0), sub_generator=((-1.0, 0.5), (-0.5, -1.0))), ["off the diagonal", "row 1"]),
    (lambda: PhaseType(alpha=(1.0, 0.0), sub_generator=((-1.0, 1.0), (1.0, -1.0))), ["never", "[0, 1]"]),
    (lambda: PhaseType.from_moments(mean=0.0, scv=1.0), ["phase-type", "`mean`", "0.0"]),
    (lambda: PhaseType.from_moments(mean=1.0, scv=-1.0), ["phase-type", "`scv`", "-1.0"]),
    (lambda: Empirical(quantiles=(1.0,)), ["empirical", "at least 2"]),
    (lambda: Discrete(values=()), ["discrete", "values"]),
    (lambda: Replay(values=()), ["replay", "values"]),
    (lambda: Replay(values=(1.0, -2.0)), ["replay", "-2.0"]),
    (lambda: Replay(values=(0.0,) * (REPLAYED_MAX + 1)), ["replay", "at most 1,000,000", "record fewer"]),
    (lambda: Replay(values=(1.0,), then="stop"), ["replay", "then", "repeat", "stop"]),  # type: ignore[arg-type]
    (lambda: Discrete(values=(1.0, -2.0)), ["discrete", "-2.0"]),
    (lambda: Discrete(values=(1.0, 2.0), weights=(1.0,)), ["discrete", "weights", "one for each value"]),
    (lambda: Discrete(values=(1.0,), weights=(0.0,)), ["discrete", "weights", "not all 0"]),
    (lambda: Empirical(quantiles=(1.0, 3.0, 2.0)), ["empirical", "positions 1 and 2", "sort"]),
    (lambda: Empirical(quantiles=(-1.0, 3.0)), ["empirical", "-1.0"]),
    (lambda: Empirical.from_samples([1.0, 2.0], n=1), ["empirical", "quantiles", "1"]),
    (lambda: Zipf(count=0, exponent=1.0), ["zipf", "`count`", "0"]),
    (lambda: Zipf(count=2.5, exponent=1.0), ["zipf", "whole", "2.5"]),
    (lambda: Zipf(count=10, exponent=-1.0), ["zipf", "`exponent`", "-1.0"]),
    (lambda: Zipf(count=10**9, exponent=1.0), ["zipf", "`count`", "1e+07"]),
    (lambda: ks_distance(Exponential(scale=1.0), []), ["exponential", "no samples"]),
]


@pytest.mark.parametrize(("build", "words"), BAD)
def test_bad_distributions_are_refused(build: Callable[[], object], words: list[str]) -> None:
    with pytest.raises(DistributionError) as caught:
        build()
    for word in words:
        assert word in str(caught.value)
    assert isinstance(caught.value, ConfigurationError)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "no samples"),
        ([1.0, NAN], "1 of 2"),
        ([1.0, np.inf, 2.0], "inf"),
        ([3.0, -1.0], "-1.0"),
        (["a"], "must be numbers"),
    ],
)
def test_bad_samples_are_refused(samples: list[Any], message: str) -> None:
    with pytest.raises(DistributionError, match=re.escape(message)):
        Hypoexponential.fit(samples)
    with pytest.raises(DistributionError, match=re.escape(message)):
        Empirical.from_samples(samples)


def test_constant_samples_are_sent_to_the_deterministic_distribution() -> None:
    with pytest.raises(DistributionError, match="deterministic"):
        Hypoexponential.fit([0.1, 0.1, 0.1])


class Link(msgspec.Struct, forbid_unknown_fields=True):
    delay: DelayDistribution


class Network(msgspec.Struct, forbid_unknown_fields=True):
    links: list[Link]


def test_toml_decodes_strictly() -> None:
    text = """
    [[links]]
    delay = {law = "exponential", mean = 0.002}
    [[links]]
    delay = {law = "normal", mean = 75, sd = 20}
    [[links]]
    delay = {law = "log-normal", median = 0.04, sigma = 0.6, low = 0.005, high = 0.2}
    [[links]]
    delay = {law = "phase-type", alpha = [1, 0], sub_generator = [[-2, 2], [0, -1]]}
    """
    links = msgspec.toml.decode(text, type=Network).links
    assert [link.delay for link in links] == [
        Exponential(scale=0.002),
        TruncatedNormal(location=75.0, scale=20.0),
        LogNormal(median=0.04, sigma=0.6, low=0.005, high=0.2),
        PhaseType(alpha=(1.0, 0.0), sub_generator=((-2.0, 2.0), (0.0, -1.0))),
    ]


@pytest.mark.parametrize(
    ("delay", "message"),
    [
        ({"law": "exponential", "mean": -1.0}, "exponential: `mean`.*-1.0.*at `\\$.links\\[0\\].delay`"),
        ({"law": "exponential", "scale": 1.0}, "unknown field `scale`.*at `\\$.links\\[0\\].delay`"),
        ({"law": "exponential"}, "missing required field `mean`.*at `\\$.links\\[0\\].delay`"),
        ({"law": "exponential", "mean": "fast"}, "Expected `float`, got `str`.*delay.mean`"),
        ({"law": "gaussian", "mean": 1.0}, "'gaussian'.*delay.law`"),
        ({"law": "zipf", "count": 10, "exponent": 1.0}, "'zipf'.*delay.law`"),
        ({"mean": 1.0}, "`law`"),
    ],
)
def test_a_decoder_names_place_and_reason(delay: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert({"links": [{"delay": delay}]}, Network)


def test_the_reason_stays_reachable_behind_a_decoder_error() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({"law": "uniform", "low": 2.0, "high": 1.0}, Distribution)
    assert isinstance(caught.value.__cause__, DistributionError)
