"""The name of a run and its primaries for others."""

from pathlib import Path

from aiperf.clock import SystemClock
from aiperf.run_directory.claim import Claim, identity_of


def held(folder: Path, times: int) -> list[int]:
    numbers = []
    for _ in range(times):
        with Claim.acquire(folder, SystemClock()) as claim:
            numbers.append(claim.number)
    return numbers


def test_all_primaries_of_a_run_have_its_name_and_no_other_run_has(tmp_path: Path) -> None:
    one, other = tmp_path / "one/claims", tmp_path / "other/claims"
    identities = [identity_of(one, number) for number in held(one, 12)]
    held(other, 1)
    assert len({identity.run for identity in identities}) == 1
    assert [identity.number for identity in identities] == [*range(1, 13)]
    assert identity_of(other, 1).run != identities[0].run
    assert str(identities[1]) == f"{identities[0].run}-2"


def test_a_claim_that_cannot_be_read_gives_a_name_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "000001.json").write_text("{")
    assert identity_of(tmp_path, 4).run != identity_of(tmp_path, 4).run
    assert identity_of(tmp_path / "none", 4).number == 4
