"""A list's site on disk: only what differs is written, and what is no longer part of it goes."""

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiperf.errors import EnvironmentNotReadyError, UsageError
from referee.listing.editions import editions_of
from referee.listing.judging import judged, verify_signatures
from referee.listing.pages import File, Site
from referee.listing.reading import FACTS, RESULTS, facts_of
from referee.listing.submissions import SIGNERS, Problem, find_submissions, read_settings
from referee.listing.systems import systems_of

MARKER = "made-by-aiperf-list.json"
"""A folder with this file is a site of this program, which may remove files below `OWN`."""

OWN = ("assets", "editions", "systems", RESULTS)


@dataclass(frozen=True, slots=True)
class Built:
    """The outcome of a build."""

    editions: int
    results: int
    read: int
    """Archives that were read now; what the site had of the others was kept."""
    problems: tuple[Problem, ...]


def build(submissions: Path, site: Path, signers: Path | None, plans: int | None) -> Built:
    """Build or renew the site of a folder of submissions.

    `signers` is a file as ssh-keygen takes it, by default the one in the folder; `plans` of each
    official run are made again (None: all). Raises UsageError if the folder or its settings are
    wrong, or the site's folder has other files, and EnvironmentNotReadyError if it cannot be
    written.
    """
    signers = signers or submissions / SIGNERS
    settings = read_settings(submissions)
    found, problems = find_submissions(submissions)
    if not signers.is_file():
        raise UsageError(f"{signers} is not a file of allowed signers; name one with --signers FILE (it may be empty)")
    places = {submission.place for submission in found}
    if unknown := [item.archive for item in settings.withdrawn if item.archive not in places]:
        raise UsageError(f"{submissions}: withdrawn archives that are not there: {', '.join(unknown)}")
    with _writable(site, submissions):
        known = {folder.name for folder in (site / RESULTS).glob("*") if (folder / FACTS).is_file()}
        facts = dict(facts_of(found, site, plans))
        readable = [(each, facts[each.digest]) for each in found if facts[each.digest].report is not None]
        signatures = verify_signatures(readable, site, signers)
        listed = [judged(each, own, signatures.get(each.digest, (None, ""))) for each, own in readable]
        failed = [each for each in found if facts[each.digest].failure]
        problems += [Problem(each.place, each.edition, facts[each.digest].failure) for each in failed]
        problems.sort(key=lambda problem: (problem.edition, problem.place))
        editions = editions_of(listed, problems, settings.withdrawn)
        made = Site(settings, editions, systems_of(listed, editions), listed)
        _renew(site, made.files(), {f"{RESULTS}/{each.submission.digest}" for each in listed})
    fresh = {each.submission.digest for each in listed} - known
    return Built(len(editions), len(listed), len(fresh), tuple(problems))


@contextmanager
def _writable(site: Path, submissions: Path) -> Iterator[None]:
    """The folder of a site, which is empty or was made by an earlier build."""
    if site.resolve() == submissions.resolve() or site.resolve() in submissions.resolve().parents:
        raise UsageError(f"{site} holds the submissions; name another folder for the site")
    try:
        others = [file.name for file in site.iterdir() if file.name[0] != "."] if site.exists() else []
        if others and MARKER not in others:
            raise UsageError(f"{site} holds other files, and is left alone; name a new folder with --output")
        site.mkdir(parents=True, exist_ok=True)
        (site / MARKER).write_text(json.dumps({"folders": OWN}), encoding="utf-8")
        yield
    except OSError as error:
        raise EnvironmentNotReadyError([f"{site} cannot be written: {error}"]) from error


def _renew(site: Path, files: Iterable[File], kept: set[str]) -> None:
    """Write files that differ from those that are there, and remove all others below `OWN`."""
    wanted = set[str]()
    for name, content in files:
        wanted.add(name)
        file = site / name
        if not file.is_file() or file.read_bytes() != content:
            file.parent.mkdir(parents=True, exist_ok=True)
            # Whole or not at all, for readers of a site that is served from here.
            temporary = file.with_name(f".{file.name}.tmp")
            temporary.write_bytes(content)
            temporary.replace(file)
    for folder in OWN:
        for path in (site / folder).iterdir() if (site / folder).is_dir() else ():
            _remove_unwanted(site, path, wanted, kept)


def _remove_unwanted(site: Path, path: Path, wanted: set[str], kept: set[str]) -> None:
    name = path.relative_to(site).as_posix()
    if name in wanted or name in kept:
        return
    if not path.is_dir() or path.is_symlink():
        path.unlink()
    elif not any(each.startswith(f"{name}/") for each in wanted):
        shutil.rmtree(path)
    else:
        for inside in path.iterdir():
            _remove_unwanted(site, inside, wanted, kept)
