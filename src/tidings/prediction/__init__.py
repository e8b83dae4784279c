"""Prediction: which share of a subscriber's events will be on time, before anything is run (paper B).

`from_network` takes a scenario's network as knowledge; `predict` answers. docs/reference/prediction.md shows both.
"""

from tidings.prediction._admission import Admission, Change, Newcomer, admit, load_newcomer
from tidings.prediction._content import ContentMatcher, signatures_of_matches
from tidings.prediction._explain import Explanation, Hop, JourneyPrediction, Remedy, explain
from tidings.prediction._intervals import Intervals, predict_intervals
from tidings.prediction._knowledge import (
    BrokerKnowledge,
    Knowledge,
    LinkKnowledge,
    PublisherKnowledge,
    Signatures,
)
from tidings.prediction._network import from_network
from tidings.prediction._predict import predict
from tidings.prediction._prediction import (
    BrokerPrediction,
    LinkPrediction,
    Model,
    Prediction,
    SubscriberPrediction,
)
from tidings.prediction._profiles import PROFILE_TABLES, from_profiles, law_of_duration, read_profiles

__all__ = [
    "PROFILE_TABLES",
    "Admission",
    "BrokerKnowledge",
    "BrokerPrediction",
    "Change",
    "ContentMatcher",
    "Explanation",
    "Hop",
    "Intervals",
    "JourneyPrediction",
    "Knowledge",
    "LinkKnowledge",
    "LinkPrediction",
    "Model",
    "Newcomer",
    "Prediction",
    "PublisherKnowledge",
    "Remedy",
    "Signatures",
    "SubscriberPrediction",
    "admit",
    "explain",
    "from_network",
    "from_profiles",
    "law_of_duration",
    "load_newcomer",
    "predict",
    "predict_intervals",
    "read_profiles",
    "signatures_of_matches",
]
