"""What a broker tells of itself: metrics, status, logs."""

__all__: list[str] = []
