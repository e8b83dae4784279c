"""What `network.toml` may say, and how it is read."""

__all__: list[str] = []
