"""The client library: asynchronous, and its blocking twin."""
