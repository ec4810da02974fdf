"""The status of an archive in a list, and which results count in an edition."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import date

import pytest

from analysis.results.copies import alphabets_of
from analysis.results.source import RunResult
from referee.listing.editions import editions_of, title_of
from referee.listing.feed import NAMESPACE, feed
from referee.listing.judging import judged
from referee.listing.reading import Facts
from referee.listing.submissions import ListSettings, Problem, Withdrawn
from referee.listing.systems import systems_of
from referee.listing.trends import trend_rows
from tests.integration.referee.listing.conftest import SIGNED, listed, submission


def test_an_official_run_that_is_signed_is_official(facts: Facts) -> None:
    assert judged(submission("a"), facts, SIGNED).result.status == "official"


@pytest.mark.parametrize(
    ("changes", "signature", "status", "rule"),
    [
        ({"signed": False}, (None, ""), "unofficial", "signature"),
        ({}, (None, "the key is not one of the list's"), "unofficial", "signature"),
        ({"statement": "it says 2, the run 1"}, SIGNED, "invalid", "statement"),
        ({"differences": ("score_ops is 2, the records give 1",)}, SIGNED, "invalid", "report"),
    ],
)
def test_what_is_not_signed_or_contradicts_itself_is_not_official(
    facts: Facts, changes: dict[str, object], signature: tuple[str | None, str], status: str, rule: str
) -> None:
    result = judged(submission("a"), facts.model_copy(update=changes), signature).result
    assert (result.status, [part.rule for part in result.report.violations]) == (status, [rule])
    assert (result.scored.score_ops is None) == (status == "invalid")


def test_a_plan_that_differs_makes_an_official_run_invalid(facts: Facts) -> None:
    found = judged(submission("a"), facts.model_copy(update={"contradictions": ("trial 3",)}), SIGNED)
    assert found.result.status == "invalid"


def test_an_edition_has_the_latest_official_result_of_each_system_and_what_was_sent_for_it(facts: Facts) -> None:
    every = [
        listed(facts, "2025-11/a", 1.0),
        listed(facts, "2026-06/a", 2.0),
        listed(facts, "2026-06/b", 9.0, name="beta"),
        listed(facts, "2026-11/a", 3.0, status="unofficial"),
        listed(facts, "2026-11/b", 8.0, name="beta"),
    ]
    found = editions_of(every, [Problem("2027-06/x", "2027-06", "broken")], ())
    counting = {edition.name: [each.submission.place for each in edition.listed] for edition in found}
    assert counting == {
        "2025-11": ["2025-11/a"],
        "2026-06": ["2026-06/a", "2026-06/b"],
        "2026-11": ["2026-06/a", "2026-11/a", "2026-11/b"],
        "2027-06": ["2026-06/a", "2026-11/b"],
    }
    ranks = [(row.system, row.score_ops, row.rank) for row in found[2].rankings["score"].with_status("official")]
    assert ranks == [("beta", 8.0, 1), ("alpha", 2.0, 2)]
    alpha, beta = systems_of(every, found)
    assert [(row["edition"], row["status"], row["rank"]) for row in alpha.history] == [
        ("2025-11", "official", 1),
        ("2026-06", "official", 2),
        ("2026-11", "official", 2),
        ("2026-11", "unofficial", None),
        ("2027-06", "official", 2),
    ]
    assert (alpha.latest.submission.place, alpha.best_rank, beta.best_rank) == ("2026-06/a", 1, 1)
    trends = {row["edition"]: (row["official"], row["first"], row["sum_score_ops"]) for row in trend_rows(found)}
    assert trends["2026-06"] == (2, "beta", 11.0)
    assert trends["2026-11"] == (2, "beta", 10.0)


def test_a_withdrawn_result_counts_in_no_edition(facts: Facts) -> None:
    every = [listed(facts, "2025-11/a", 1.0), listed(facts, "2026-06/a", 2.0)]
    back = Withdrawn(archive="2026-06/a", on=date(2026, 7, 1), reason="a fault")
    first, second = editions_of(every, (), [back])
    assert [each.submission.place for each in (*first.listed, *second.listed)] == ["2025-11/a", "2025-11/a"]
    assert (first.withdrawn, second.withdrawn) == ((), ((every[1], back),))


def test_the_feed_has_editions_and_results_with_fixed_identities(facts: Facts) -> None:
    every = [listed(facts, "2025-11/a", 1.0, name="a\x1b\x0b<b>")]
    editions = editions_of(every, (), ())
    settings = ListSettings(address="https://list.example/x")
    first, again = (feed(settings, editions, systems_of(every, editions)) for _ in range(2))
    assert first == again
    root = ET.fromstring(first)
    entries = root.findall(f"{{{NAMESPACE}}}entry")
    titles = [entry.findtext(f"{{{NAMESPACE}}}title") for entry in entries]
    assert sorted(map(str, titles)) == ["Edition November 2025", r"a\x1b\x0b<b>: 1.000 OPS, official"]
    links = [element.get("href", "") for entry in entries for element in entry.findall(f"{{{NAMESPACE}}}link")]
    assert all(link.startswith("https://list.example/x/") for link in links)
    identities = {entry.findtext(f"{{{NAMESPACE}}}id") for entry in entries}
    assert len(identities) == 2
    moved = feed(ListSettings(address="https://moved.example"), editions, systems_of(every, editions))
    assert all(str(identity).encode() in moved for identity in identities)


@pytest.mark.parametrize(
    ("name", "title"),
    [("2026-06", "June 2026"), ("2026-06-15", "15 June 2026"), ("2026-13", "Next edition"), ("next", "Next edition")],
)
def test_titles_of_editions(name: str, title: str) -> None:
    assert title_of(name) == title


@pytest.mark.parametrize(
    ("name", "found"),
    [("Cluster Ä 9", ()), ("alph\u0430", ("CYRILLIC", "LATIN")), ("\u6771\u4eac 9 Alpha", ()), ("", ())],
)
def test_letters_of_several_alphabets_are_named(name: str, found: tuple[str, ...]) -> None:
    assert alphabets_of(name) == found


def test_an_unsigned_result_takes_the_place_of_no_other_one(facts: Facts) -> None:
    """Anybody can send a result under a name that an earlier one has."""
    own, later = (listed(facts, place, 1.0, "unofficial") for place in ("2026-06/own", "2026-11/later"))
    every = [replace(each, result=replace(each.result, signer=None)) for each in (own, later)]
    found = editions_of(every, (), ())
    assert [each.submission.place for each in found[1].listed] == ["2026-06/own", "2026-11/later"]
    systems = systems_of(every, found)
    assert [(system.name, system.signer, len(system.listed)) for system in systems] == [("alpha", "", 1)] * 2
    assert len({system.id for system in systems}) == 2


def test_results_of_two_signers_are_two_systems(facts: Facts) -> None:
    one: RunResult = listed(facts, "2026-06/a", 1.0).result
    assert replace(listed(facts, "2026-06/b", 1.0), result=replace(one, signer="eve")).system[0] == "eve"
