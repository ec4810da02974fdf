"""SLURM's compressed lists of hosts."""

import pytest

from aiperf.errors import UsageError
from slurm.hostlists import compact, expand


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ()),
        ("login", ("login",)),
        ("gpu[01-03,7],login", ("gpu01", "gpu02", "gpu03", "gpu7", "login")),
        ("r[1-2]n[1-2]-ib", ("r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib")),
        ("n[098-101]", ("n098", "n099", "n100", "n101")),
    ],
)
def test_host_lists(text: str, hosts: tuple[str, ...]) -> None:
    assert expand(text) == hosts


@pytest.mark.parametrize("text", ["n[1-2", "n1-2]", "n[[1]]", "n[a-b]", "n[3-1]", "n[]", "n[1-99999999]"])
def test_broken_host_lists(text: str) -> None:
    with pytest.raises(UsageError, match="host list"):
        expand(text)


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ((), ""),
        (("login",), "login"),
        (("gpu08", "gpu09", "gpu10", "gpu12"), "gpu[08-10,12]"),
        (("n1", "n2", "n10"), "n[1-2],n10"),
        (("b2", "a1", "b1", "b1"), "b[1-2],a1"),
        (("r1n3.ib", "r1n4.ib"), "r1n[3-4].ib"),
    ],
)
def test_a_compact_list_stands_for_the_same_hosts(hosts: tuple[str, ...], text: str) -> None:
    assert compact(hosts) == text
    assert sorted(expand(compact(hosts))) == sorted(set(hosts))
