"""One broker process: its start, its guests, its end; and all processes of a network."""

__all__: list[str] = []
