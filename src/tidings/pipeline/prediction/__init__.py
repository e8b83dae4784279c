"""Predictions for networks with very many subscriptions, on Spark (docs/reference/prediction.md)."""

from tidings.pipeline.prediction._predict import SparkPrediction, predict_on_spark

__all__ = ["SparkPrediction", "predict_on_spark"]
