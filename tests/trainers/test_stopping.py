"""A signal is a wish to stop, and is answered at once."""

import signal

from pettingllms_trainers.ranks import Ranks, StopRequest


def test_a_signal_is_answered_at_once_by_the_main_rank(capfd):
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.signal is signal.SIGTERM
        assert "SIGTERM: stopping when what is being computed is done" in capfd.readouterr().err

    class Second(Ranks):
        rank = 1

    with StopRequest(Second()):
        signal.raise_signal(signal.SIGTERM)
    assert capfd.readouterr().err == ""
