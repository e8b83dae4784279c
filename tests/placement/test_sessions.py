import numpy as np
import pytest

from tidings.errors import InputError
from tidings.placement import SessionLog, evaluate, pool


def test_a_log_sets_the_bit_of_each_event_that_it_delivers() -> None:
    log = SessionLog(70)
    log.delivered(0, 2)
    log.delivered(5, 0)
    log.delivered(69, 3)
    assert log.deliveries == 5
    assert log.words.tolist() == [1, 1 << 5]
    with pytest.raises(InputError, match="event 70 is not one of this session's 70"):
        log.delivered(70, 1)
    with pytest.raises(InputError, match="at least 1"):
        SessionLog(0)


def test_pooled_sessions_add_up(make_session) -> None:
    session = make_session(3, 12, 100)
    double = pool([session, session])
    once, twice = evaluate(session), evaluate(double)
    assert twice.messages.tolist() == (2 * once.messages).tolist()
    assert twice.total_delay_ns.tolist() == (2 * once.total_delay_ns).tolist()
    assert double.traced_events == 200
    with pytest.raises(InputError, match="cannot be pooled"):
        pool([session, make_session(4, 12, 100)])
    with pytest.raises(InputError, match="no session"):
        pool([])
    assert np.array_equal(pool([session]).bits, session.bits)
