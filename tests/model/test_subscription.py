import math

import pytest

from tidings.errors import InputError
from tidings.model.filters import Filter
from tidings.model.subscription import Subscription


def subscription(**more):
    return Subscription(id="s", subscriber="x", filter=Filter.parse("a > 1"), **more)


@pytest.mark.parametrize(
    ("max_delay_s", "lifetime_s", "left_s"),
    [(10.0, None, 8.0), (None, 5.0, 3.0), (10.0, 5.0, 3.0), (2.0, 5.0, 0.0), (None, None, math.inf)],
)
def test_lifetime_left_is_the_tighter_deadline(max_delay_s, lifetime_s, left_s):
    assert subscription(max_delay_s=max_delay_s).lifetime_left_s(lifetime_s=lifetime_s, elapsed_s=2.0) == left_s


@pytest.mark.parametrize("bad", [{"max_delay_s": 0.0}, {"max_delay_s": math.inf}, {"price": -1.0}, {"price": math.nan}])
def test_impossible_deadlines_and_prices(bad):
    with pytest.raises(InputError, match="subscription 's'"):
        subscription(**bad)


def test_defaults():
    assert (subscription().price, subscription().max_delay_s) == (1.0, None)
