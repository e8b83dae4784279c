"""Prediction: the on-time share of every subscriber, before anything is run (paper B).

`from_network` makes knowledge from a scenario's network; `predict` computes the shares. See
docs/reference/prediction.md.
"""

from tidings.prediction._admission import Admission, Change, Newcomer, admit, admit_measured, load_newcomer
from tidings.prediction._content import ContentMatcher, ContentSpace, EventKinds, signatures_of_matches
from tidings.prediction._explain import Explanation, Hop, JourneyPrediction, Remedy, explain
from tidings.prediction._failures import Failing, SchemePrediction, failing_network, predict_schemes
from tidings.prediction._intervals import Intervals, predict_intervals
from tidings.prediction._knowledge import (
    BrokerKnowledge,
    Knowledge,
    LinkKnowledge,
    PublisherKnowledge,
    Signatures,
)
from tidings.prediction._measured import failing_of, network_of, network_of_profiles
from tidings.prediction._network import from_network
from tidings.prediction._outages import failing_profiles, read_components, transitions_of_outages
from tidings.prediction._overheads import Overhead
from tidings.prediction._predict import predict
from tidings.prediction._prediction import (
    SAMPLED,
    BrokerPrediction,
    LinkPrediction,
    Model,
    Prediction,
    Sample,
    SubscriberPrediction,
)
from tidings.prediction._profiles import (
    PROFILE_TABLES,
    DurationFit,
    distribution_of_duration,
    fit_of_duration,
    from_profiles,
    imprecise,
    read_profiles,
)
from tidings.prediction._sample import predict_measured, predict_network
from tidings.prediction._unmodelled import Unmodelled, UnmodelledKind, unmodelled

__all__ = [
    "PROFILE_TABLES",
    "SAMPLED",
    "Admission",
    "BrokerKnowledge",
    "BrokerPrediction",
    "Change",
    "ContentMatcher",
    "ContentSpace",
    "DurationFit",
    "EventKinds",
    "Explanation",
    "Failing",
    "Hop",
    "Intervals",
    "JourneyPrediction",
    "Knowledge",
    "LinkKnowledge",
    "LinkPrediction",
    "Model",
    "Newcomer",
    "Overhead",
    "Prediction",
    "PublisherKnowledge",
    "Remedy",
    "Sample",
    "SchemePrediction",
    "Signatures",
    "SubscriberPrediction",
    "Unmodelled",
    "UnmodelledKind",
    "admit",
    "admit_measured",
    "distribution_of_duration",
    "explain",
    "failing_network",
    "failing_of",
    "failing_profiles",
    "fit_of_duration",
    "from_network",
    "from_profiles",
    "imprecise",
    "load_newcomer",
    "network_of",
    "network_of_profiles",
    "predict",
    "predict_intervals",
    "predict_measured",
    "predict_network",
    "predict_schemes",
    "read_components",
    "read_profiles",
    "signatures_of_matches",
    "transitions_of_outages",
    "unmodelled",
]
