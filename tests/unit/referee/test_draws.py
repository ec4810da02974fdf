"""Draws of an audit: reproducible by hand, unknown before the nonce, weighted by operations."""

import hashlib

import pytest

from referee.audit.draws import Claim, draw, power, power_line

HEAD = "0" * 64
CLAIMS = [Claim(1, 1, 10), Claim(1, 2, 10), Claim(2, 1, 80)]


def test_the_first_draw_is_the_one_that_the_docstring_describes() -> None:
    number = int(hashlib.sha256(f"{HEAD}\nword\n1".encode()).hexdigest(), 16) % 100
    expected = CLAIMS[0] if number < 10 else CLAIMS[1] if number < 20 else CLAIMS[2]
    assert draw(CLAIMS, HEAD, "word", 1) == [expected]
    assert draw(reversed(CLAIMS), HEAD, "word", 1) == [expected]


def test_draws_are_without_replacement_until_all_are_drawn() -> None:
    drawn = draw(CLAIMS, HEAD, "word", 100)
    assert sorted(drawn) == CLAIMS
    assert draw(CLAIMS, HEAD, "word", 2) == drawn[:2]


def test_head_and_nonce_decide() -> None:
    claims = [Claim(trial, 1, 1) for trial in range(1000)]
    seen = {tuple(draw(claims, head, nonce, 8)) for head in ("0" * 64, "1" * 64) for nonce in ("a", "b")}
    assert len(seen) == 4


def test_claims_are_drawn_in_proportion_to_their_operations() -> None:
    first = [draw(CLAIMS, HEAD, str(nonce), 1)[0].trial for nonce in range(2000)]
    assert 0.77 < first.count(2) / 2000 < 0.83


def test_claims_without_operations_are_never_drawn() -> None:
    assert draw([Claim(1, 1, 0)], HEAD, "word", 8) == []


def test_the_power_of_draws() -> None:
    assert power(8, 0.3) == pytest.approx(1 - 0.7**8)
    assert power_line(8) == ("8 draws find a run in which 30 % of the operations were not done with probability 94 %")
