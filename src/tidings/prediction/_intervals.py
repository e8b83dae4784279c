"""How sure is a prediction from measurements? Intervals by resampling what was measured.

Knowledge measured from n observations is drawn again as another n observations might have given it: content by
Dirichlet weights (the Bayesian bootstrap), a publisher's rate and the mean of a service or a propagation by their
standard error (a gamma factor of mean 1), a loss by a beta distribution. Each draw is predicted; the interval contains
the middle share of the results, and the prediction itself. Observations are assumed to be independent; where they are
not, the truth lies outside more often than the level says. Knowledge that was given, not measured, is not drawn. No
draw shares a random number with the data: `generator` is an argument.
"""

from dataclasses import dataclass, replace

import numpy as np

from tidings.errors import InputError
from tidings.model.distributions import scaled
from tidings.prediction._knowledge import BrokerKnowledge, FloatArray, Knowledge, LinkKnowledge, PublisherKnowledge
from tidings.prediction._predict import predict
from tidings.prediction._prediction import Model

__all__ = ["Intervals", "predict_intervals"]

REPLICATES = 60
LEVEL = 0.9


@dataclass(frozen=True, kw_only=True, eq=False)
class Intervals:
    """By subscription: the lower and upper end for R' (NaN where there is none), at this level, assuming that what was
    observed is independent."""

    level: float
    low: FloatArray
    high: FloatArray


def predict_intervals(
    knowledge: Knowledge,
    generator: np.random.Generator,
    *,
    model: Model = "ours",
    level: float = LEVEL,
    replicates: int = REPLICATES,
) -> Intervals:
    """Predict `replicates` redrawn knowledges; the ends are quantiles over them."""
    if not 0.0 < level < 1.0 or replicates < 2:
        raise InputError(
            f"intervals need a level between 0 and 1 and 2 or more replicates, not {level!r}, {replicates}"
        )
    best = predict(knowledge, model=model).reliability
    drawn = np.array([predict(_redrawn(knowledge, generator), model=model).reliability for _ in range(replicates)])
    is_known = ~np.isnan(best)
    low, high = np.full(len(best), np.nan), np.full(len(best), np.nan)
    # A subscription that a draw never matches says nothing about R': the draw is passed over.
    kept = np.where(np.isnan(drawn[:, is_known]), best[is_known], drawn[:, is_known])
    low[is_known] = np.minimum(best[is_known], np.quantile(kept, (1.0 - level) / 2.0, axis=0))
    high[is_known] = np.maximum(best[is_known], np.quantile(kept, (1.0 + level) / 2.0, axis=0))
    return Intervals(level=level, low=low, high=high)


def _redrawn(knowledge: Knowledge, generator: np.random.Generator) -> Knowledge:
    return replace(
        knowledge,
        brokers=tuple(_broker(broker, generator) for broker in knowledge.brokers),
        links=tuple(_link(link, generator) for link in knowledge.links),
        publishers=tuple(_publisher(publisher, generator) for publisher in knowledge.publishers),
    )


def _factor(scv: float, observed: int, generator: np.random.Generator) -> float:
    """The mean of `observed` draws with this squared coefficient of variation, relative to their true mean."""
    return float(generator.gamma(observed / scv, scv / observed)) if scv > 0.0 else 1.0


def _broker(broker: BrokerKnowledge, generator: np.random.Generator) -> BrokerKnowledge:
    if not broker.observed or broker.service is None:
        return broker
    factor = _factor(broker.service.scv(), broker.observed, generator)
    return replace(broker, service_factor=broker.service_factor * factor)


def _link(link: LinkKnowledge, generator: np.random.Generator) -> LinkKnowledge:
    if not link.observed:
        return link
    lost = link.loss * link.observed
    loss = generator.beta(lost + 0.5, link.observed - lost + 0.5) if lost > 0.0 else link.loss
    slow = 1.0 if link.slowness is None else _factor(link.slowness.scv(), link.observed, generator)
    propagation = _factor(link.propagation.scv(), link.observed, generator)
    return replace(
        link,
        loss=min(float(loss), 0.999999),
        slowness_factor=link.slowness_factor * slow,
        propagation_factor=link.propagation_factor * propagation,
    )


def _publisher(publisher: PublisherKnowledge, generator: np.random.Generator) -> PublisherKnowledge:
    content = publisher.content
    if content.sampled:
        # What matched nothing is a kind of its own; half an observation keeps rare kinds from freezing at their share.
        unmatched = max(0.0, 1.0 - float(content.weights.sum()))
        counts = content.sampled * np.append(content.weights, unmatched)
        shares = generator.gamma(np.maximum(counts, 1e-9))
        content = replace(content, weights=shares[:-1] / shares.sum())
    interval = publisher.interval
    if publisher.observed:
        interval = scaled(interval, _factor(interval.scv(), publisher.observed, generator))
    return replace(publisher, content=content, interval=interval)
