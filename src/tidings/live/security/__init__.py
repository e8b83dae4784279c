"""TLS, and certificates for trying it locally."""
