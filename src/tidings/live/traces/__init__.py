"""What happened, as Parquet files in the format of the trace contract."""

__all__: list[str] = []
