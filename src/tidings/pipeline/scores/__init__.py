"""Scores: who got what on time, by subscription, publisher, topic and window of time, and what links carried for it."""

from tidings.pipeline.scores._measures import scores_measures
from tidings.pipeline.scores._pairs import BORDER_EVENTS, LEVEL, SCORES
from tidings.pipeline.scores._traffic import TRAFFIC

__all__ = ["BORDER_EVENTS", "LEVEL", "SCORES", "TRAFFIC", "scores_measures"]
