"""One broker process from start to stop, and the supervisor of all processes of a network."""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.live.broker._supervisor import Supervisor, serve, serve_child
    from tidings.live.broker._warmup import warm_up

__all__ = ["Supervisor", "serve", "serve_child", "warm_up"]

__getattr__, __dir__ = lazily(__name__)
