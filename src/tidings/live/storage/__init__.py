"""The durable store and its group commit."""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.live.storage._store import Store

__all__ = ["Store"]

__getattr__, __dir__ = lazily(__name__)
