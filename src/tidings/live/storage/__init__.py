"""The durable store and its group commit."""
