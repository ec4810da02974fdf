"""CPUs of the ranks as they ran, next to those of their agents."""

import json
from pathlib import Path

import pytest

from aiperf.errors import RecordDamagedError
from aiperf.facts import RankPlace
from aiperf.records.record import decode_record, encode_record
from aiperf.run_directory.paths import RunPaths
from analysis.output.page.vocabulary import places
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.cluster.places import cpus_of_ranks
from analysis.report.estimates import PlacePart
from tests.support.hand_made import HandMadeRun


def parts_of(
    root: Path, *ranks: tuple[RankPlace, ...], cpus: str = "0-63", near: str | None = None
) -> tuple[PlacePart, ...]:
    """A run with a training for each of these, by replicas in turn whose agents are on node n1."""
    run = HandMadeRun(root).at(0).release(1000, replicas=len(ranks))
    for replica, own in enumerate(ranks):
        run.at(10).start_trial(replica + 1, replica=replica).built(replica + 1, replica, places=own or None)
    node = {"host": "n1", "cpu_affinity": cpus} | ({} if near is None else {"accelerator_cpus": near})
    run.paths.system.write_text(json.dumps({str(replica): node for replica in range(len(ranks))}))
    found = build_report(read_run(run.end(1000).paths)).places
    assert found is not None
    return found


def built_in(run: HandMadeRun) -> list[bytes]:
    """The lines of the history that say what was built."""
    lines = (line for file in run.paths.history.iterdir() for line in file.read_bytes().splitlines(keepends=True))
    return [line for line in lines if b"trial_built" in line]


def test_ranks_that_have_the_cpus_of_their_agent_are_one_row(tmp_path: Path) -> None:
    (part,) = parts_of(tmp_path, (RankPlace("n1", "0-63", "0-1"),) * 4)
    assert (part.ranks, part.cpu_count, part.domains, part.sharing, part.remark) == ("0-3", 64, "0-1", 3, "")
    assert places((part,)) == "None of 4 ranks had other CPUs than their agents, 4 shared CPUs with other ranks."


def test_ranks_on_cpus_of_their_own_share_nothing(tmp_path: Path) -> None:
    found = parts_of(tmp_path, (RankPlace("n1", "0-31", "0"), RankPlace("n1", "32-63", "1")))
    assert [(part.ranks, part.domains, part.sharing) for part in found] == [("0", "0", 0), ("1", "1", 0)]
    assert {part.remark for part in found} == {"bound to 32 of the 64 CPUs of its agent"}


def test_ranks_that_stay_at_their_accelerators_are_as_asked(tmp_path: Path) -> None:
    own = (RankPlace("n1", "8-31", "0"), RankPlace("n1", "32-63", "1"), RankPlace("n1", "32-35", "1"))
    found = parts_of(tmp_path, own, cpus="8-63", near="0-31; 32-63")
    remarks = {part.cpus: part.remark for part in found}
    assert remarks == {
        "8-31": "",
        "32-63": "",
        "32-35": "bound to 4 of the 56 CPUs of its agent; 1 other rank may use them, too",
    }
    data = read_run(RunPaths(tmp_path))
    assert cpus_of_ranks(data) == {}, "they leave none of the agent's CPUs idle"


@pytest.mark.parametrize(
    "near",
    ["0-31", "0-31; 32-47", "all", "0-31; 32-63; " + "; ".join(["9999"] * 100_000)],
    ids=["at-one-socket", "not-all", "words", "hostile"],
)
def test_ranks_that_no_accelerator_keeps_on_these_cpus_are_remarkable(tmp_path: Path, near: str) -> None:
    (part,) = parts_of(tmp_path, (RankPlace("n1", "0-31", "0"),), near=near)
    assert part.remark == "bound to 32 of the 64 CPUs of its agent"
    assert cpus_of_ranks(read_run(RunPaths(tmp_path))) == {0: 32}


def test_ranks_of_two_replicas_that_something_bound_to_the_same_cpus_come_first(tmp_path: Path) -> None:
    free, bound = (RankPlace("n2", "0-63", ""),), (RankPlace("n1", "0-3", ""),)
    first, second, third = parts_of(tmp_path, free, bound, bound)
    assert [part.replica for part in (first, second, third)] == [1, 2, 0]
    words = "bound to 4 of the 64 CPUs of its agent; 1 other rank may use them, too"
    assert [part.remark for part in (first, second, third)] == [words, words, ""]
    assert third.sharing == 0, "the CPUs of another node have the same numbers"


def test_cpus_beyond_those_of_the_agent_are_a_remark(tmp_path: Path) -> None:
    (part,) = parts_of(tmp_path, (RankPlace("n1", "4-9", ""),), cpus="0-7")
    assert part.remark == "2 of its CPUs are not among those of its agent"


@pytest.mark.parametrize("cpus", ["", "all", "0-63\n", 7])
def test_an_agent_whose_cpus_are_not_known_is_compared_with_nothing(tmp_path: Path, cpus: str) -> None:
    (part,) = parts_of(tmp_path, (RankPlace("n1", "0-3", ""),), cpus=cpus)
    assert (part.cpu_count, part.remark) == (4, "")


def test_a_replica_whose_earlier_training_ran_elsewhere_says_so(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(1000)
    for trial, cpus in ((1, "0-3"), (2, "4-7"), (3, "4-7")):
        run.at(100 * trial).start_trial(trial).built(trial, places=(RankPlace("n1", cpus, "0"),)).end_trial(trial)
    report = build_report(read_run(run.end(1000).paths))
    assert [(part.cpus, part.elsewhere) for part in report.places or ()] == [("4-7", 1)]


def test_a_run_that_recorded_no_places_says_so(tmp_path: Path) -> None:
    assert parts_of(tmp_path, ()) == ()
    assert places(()) == "Not known: no training recorded on which CPUs its ranks ran."


@pytest.mark.parametrize("cpus", ["0-", "-1", "1,,2", "0x1", "00000", "1 2", "0-1-2", "0," * 20_000 + "0"])
def test_a_record_with_another_list_of_cpus_is_damaged(tmp_path: Path, cpus: str) -> None:
    run = HandMadeRun(tmp_path).at(0).release(1000).start_trial(1).built(1, places=(RankPlace("n1", cpus, ""),))
    (line,) = built_in(run)
    with pytest.raises(RecordDamagedError, match="places"):
        decode_record(line)


def test_a_record_keeps_the_places(tmp_path: Path) -> None:
    places_of_all = (RankPlace("n1", "0-3,8", "0"), RankPlace("n2", "1", ""))
    run = HandMadeRun(tmp_path).at(0).release(1000).start_trial(1).built(1, places=places_of_all)
    (line,) = built_in(run)
    record = decode_record(line)
    assert getattr(record.body, "places", None) == places_of_all
    assert encode_record(record) == line
