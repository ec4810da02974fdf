"""The Atom feed of a list (RFC 4287): its editions and its latest results."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from aiperf.cli.units import count, si
from aiperf.untrusted.text import for_terminal
from referee.listing.editions import Edition
from referee.listing.submissions import ListSettings, day_of
from referee.listing.systems import System

NAMESPACE = "http://www.w3.org/2005/Atom"
MOST_RESULTS = 100
LONG_AGO = "1970-01-01T00:00:00Z"
"""Time of what has no date. The feed has no time of its own: the same archives give the same feed.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: a stable name for its identity, its title, its page, its time in UTC, its text."""

    identity: str
    title: str
    page: str
    updated: str
    summary: str


def feed(settings: ListSettings, editions: Sequence[Edition], systems: Sequence[System]) -> bytes:
    """The feed. Its links are absolute if the list has an address."""
    base = settings.address and f"{settings.address.rstrip('/')}/"
    entries = sorted(
        [*map(_edition, (each for each in editions if day_of(each.name) is not None)), *_results(systems)],
        key=lambda entry: (entry.updated, entry.identity),
        reverse=True,
    )
    root = ElementTree.Element("feed", {"xmlns": NAMESPACE})
    _add(root, "id", base or _urn(f"list {settings.title}"))
    _add(root, "title", settings.title)
    _add(root, "updated", entries[0].updated if entries else LONG_AGO)
    ElementTree.SubElement(root, "link", {"href": f"{base}feed.xml", "rel": "self"})
    _add(ElementTree.SubElement(root, "author"), "name", settings.title)
    for entry in entries:
        element = ElementTree.SubElement(root, "entry")
        _add(element, "id", _urn(entry.identity))
        _add(element, "title", entry.title)
        _add(element, "updated", entry.updated)
        ElementTree.SubElement(element, "link", {"href": f"{base}{entry.page}"})
        _add(element, "summary", entry.summary)
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _edition(edition: Edition) -> Entry:
    rows = edition.rankings["score"].with_status("official")
    first = f"; first by score: {rows[0].system} with {si(rows[0].score_ops, 'OPS')}" if rows else ""
    workloads = f"; {count(len(edition.workloads), 'result')} of scientific workloads" if edition.workloads else ""
    return Entry(
        f"edition {edition.name}",
        f"Edition {edition.title}",
        f"editions/{edition.name}/score.html",
        f"{day_of(edition.name)}T00:00:00Z",
        f"{count(len(rows), 'official system')}{first}{workloads}.",
    )


def _results(systems: Sequence[System]) -> list[Entry]:
    found = []
    for system in systems:
        for each in system.listed:
            report = each.result.scored
            score = f"{si(report.score_ops, 'OPS')}, " if report.score_ops is not None else ""
            moment = report.started or LONG_AGO
            found.append(
                Entry(
                    each.submission.digest,
                    f"{system.name}: {score}{each.result.status}",
                    f"systems/{system.id}.html",
                    f"{moment.partition('.')[0].removesuffix('Z')}Z",
                    f"{each.submission.place}: {each.signature}.",
                )
            )
    return sorted(found, key=lambda entry: (entry.updated, entry.identity), reverse=True)[:MOST_RESULTS]


def _urn(identity: str) -> str:
    return uuid.uuid5(uuid.NAMESPACE_OID, identity).urn


def _add(parent: ElementTree.Element, name: str, text: str) -> None:
    # XML has no way to write most control characters.
    ElementTree.SubElement(parent, name).text = for_terminal(text)
