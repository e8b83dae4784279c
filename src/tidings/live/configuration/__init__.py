"""The contents of `network.toml`, and how it is read."""

__all__: list[str] = []
