"""Traces of live brokers: Parquet files in the format of the trace contract."""

__all__: list[str] = []
