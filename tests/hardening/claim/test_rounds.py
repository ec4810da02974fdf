"""Takers with slow files, deaths and stepping clocks: never two holders, nor none for ever."""

from tests.hardening.claim.rounds import play


def test_eight_takers_are_never_two_holders() -> None:
    """`python -m tests.hardening.claim --rounds 10000` is the long form."""
    tally = play(60)
    assert (tally.doubles, tally.stuck) == (0, 0), str(tally)
    assert tally.holders >= 60
    assert tally.deaths > 10
