"""TLS, and certificates for trying it locally."""

__all__: list[str] = []
