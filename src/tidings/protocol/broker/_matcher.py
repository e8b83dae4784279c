"""Which subscriptions an event matches: filters by key, each text matched once."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from tidings.matching import MOST_MASKED, MaskIndex, each_bit
from tidings.model.filters import Filter
from tidings.protocol._filters import parsed

if TYPE_CHECKING:
    from tidings.matching import MatchingIndex

__all__ = ["Matcher", "Token"]

_ANSWERS: Final = 4_096
"""For so many combinations of filters, the keys are cached."""
_MOST_ADDED: Final = 4_096
"""At most so many filters wait to be entered into the index with the next event."""
_Key = tuple[str, str]
Token = int | tuple[int, ...]
"""Which filters an event matches: equal tokens of one matcher, between two changes, stand for equal answers."""


class Matcher:
    """Filters by key. Equal filters are matched once; up to MOST_MASKED clauses by masks, more of them in an index."""

    def __init__(self) -> None:
        self.changes = 0
        self._masks: MaskIndex | None = MaskIndex()
        self._index: MatchingIndex | None = None
        self._texts: dict[_Key, str] = {}
        # By the text of the filter: its keys. Nearly all texts have one key, which is then stored without a dict.
        self._alike: dict[str, _Key | dict[_Key, None]] = {}
        self._tokens: dict[str, int] = {}  # by the text: its bits, or its number in the index
        self._text_of: dict[int, str] = {}  # by each of the bits, or by the number
        self._added: dict[int, Filter] = {}
        self._next = 0
        self._answers: dict[Token, list[_Key]] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def __contains__(self, text: str) -> bool:
        return text in self._alike

    def put(self, key: _Key, text: str) -> None:
        """Enter a filter, or replace it."""
        if key in self._texts:
            self.drop(key)
        self._change()
        self._texts[key] = text
        alike = self._alike.get(text)
        if alike is None:
            self._alike[text] = key
            self._enter(text)
        elif isinstance(alike, dict):
            alike[key] = None
        else:
            self._alike[text] = {alike: None, key: None}

    def drop(self, key: _Key) -> None:
        """Forget a filter, if it is known."""
        text = self._texts.pop(key, None)
        if text is None:
            return
        self._change()
        alike = self._alike[text]
        if isinstance(alike, dict):
            del alike[key]
        if not alike or not isinstance(alike, dict):
            del self._alike[text]
            token = self._tokens.pop(text)
            for each in (token,) if self._masks is None else each_bit(token):
                del self._text_of[each]
            if self._masks is not None:
                self._masks.remove(token)
            elif self._added.pop(token, None) is None and self._index is not None:
                self._index.remove(token)

    def token(self, attributes: Mapping[str, Any]) -> Token:
        """Which filters match the event."""
        if self._masks is not None:
            return self._masks.match(attributes)
        index = self._filled()
        return tuple(sorted(cast(list[int], index.match(attributes))))

    def _filled(self) -> "MatchingIndex":
        """The index of all filters."""
        if self._index is None:
            from tidings.matching import MatchingIndex  # few brokers need it, and it takes long to load

            self._index = MatchingIndex()
        if self._added:
            self._index.add_many(self._added.items())
            self._added.clear()
        return self._index

    def tokens(self) -> Callable[[Mapping[str, Any]], Token]:
        """`token`, with everything looked up that cannot change between two changes."""
        if not self._texts:
            return _nothing
        return self.token if self._masks is None else self._masks.match

    def keys(self, token: Token) -> list[_Key]:
        """The keys of these filters, in order."""
        known = self._answers.get(token)
        if known is None:
            found = each_bit(token) if isinstance(token, int) else token
            texts = dict.fromkeys(self._text_of[each] for each in found)
            known = sorted(key for text in texts for key in self._who(text))
            if len(self._answers) >= _ANSWERS:
                self._answers.clear()
            self._answers[token] = known
        return known

    def _who(self, text: str) -> Iterable[_Key]:
        alike = self._alike[text]
        return alike if isinstance(alike, dict) else (alike,)

    def _change(self) -> None:
        self.changes += 1
        self._answers.clear()

    def _enter(self, text: str) -> None:
        if self._masks is not None:
            token = self._tokens[text] = self._masks.add(parsed(text))
            self._text_of.update(dict.fromkeys(each_bit(token), text))
            if len(self._masks) > MOST_MASKED:
                self._masks = None
                self._text_of.clear()
                for each in self._tokens:
                    self._number(each)
        else:
            self._number(text)

    def _number(self, text: str) -> None:
        """Enter a filter into the index, under a whole number."""
        self._tokens[text] = self._next
        self._text_of[self._next] = text
        self._added[self._next] = parsed(text)
        if len(self._added) >= _MOST_ADDED:
            self._filled()  # they need less memory in the index
        self._next += 1


def _nothing(attributes: Mapping[str, Any]) -> Token:  # noqa: ARG001
    return 0
