"""HTML and SVG built as values: whatever is not markup already is escaped, so data cannot become markup."""

from html import escape

__all__ = ["Content", "Markup", "joined", "tag"]


class Markup(str):
    """Text that is HTML; only `tag` and `joined` make it."""

    __slots__ = ()


Content = str | int | None
"""What may be in an element: markup as it is, other text escaped, None nothing."""

_EMPTY = frozenset({"br", "col", "input", "meta"})


def joined(*parts: Content) -> Markup:
    """One after the other."""
    return Markup("".join(_shown(part) for part in parts))


def tag(name: str, *children: Content, **attributes: str | float | bool | None) -> Markup:
    """An element. `class_` is the attribute class, `aria_label` is aria-label; None or False leaves one out, True has
    no value."""
    written = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in _EMPTY:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def _attribute(key: str, value: str | float | bool) -> str:
    name = key.removesuffix("_").replace("_", "-")
    if value is False:
        return ""
    if value is True:
        return f" {name}"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f' {name}="{escape(text, quote=True)}"'


def _shown(part: Content) -> str:
    if part is None:
        return ""
    return part if isinstance(part, Markup) else escape(str(part), quote=False)
