"""What a broker tells of itself: metrics, status, logs."""
