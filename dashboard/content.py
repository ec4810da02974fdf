"""The content of a dashboard: its runs, and what its pages show of them."""

import asyncio
from dataclasses import dataclass
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from aiperf.clock import Clock
from aiperf.run_directory.paths import RunPaths
from analysis.output.page.links import Links
from dashboard.metrics import metrics_text
from dashboard.rendering import Worker
from dashboard.runs import Runs
from dashboard.watch import INTERVAL_S, Feed, View
from dashboard.wording import sentence_of, state_of
from dashboard.work import Answer, Task

FRESH_S = 0.02
"""Seconds for which a reader of metrics waits for the newest ones."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A run whose page was opened."""

    view: View
    feed: Feed


class Board:
    """Pages of a dashboard. Addresses carry the token; a run is named by its id."""

    def __init__(self, runs: Runs, token: str, clock: Clock) -> None:
        self.list_feed = Feed(self._refresh_list, clock)
        self._runs = runs
        self._token = token
        self._clock = clock
        # A long list must not delay the page that is looked at.
        self._pages, self._statuses = Worker(), Worker()
        self._watched: dict[str, Watched] = {}
        self._listed: dict[str, View] = {}
        self._scrape: asyncio.Task[bool] | None = None
        """The reading of all runs that the last reader of metrics began."""
        self._scripts: Answer | None = None
        self._scripts_turn = asyncio.Lock()
        self._templates = Environment(
            loader=PackageLoader("dashboard"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )

    def address(self, path: str) -> str:
        """The address of a page, with the token."""
        return f"{path}?token={quote(self._token)}"

    def find(self, run: str) -> Watched | None:
        """A run by its id; None if it is not one of the runs."""
        if run not in self._watched:
            paths = self._runs.find().get(run)
            if paths is None:
                return None
            links = Links(library=self.address("/library.js"), script=self.address("/page.js"))
            view = View(paths, self._pages, self._clock, links)
            watched = Watched(view, Feed(view.refresh, self._clock))
            view.on_status = watched.feed.publish
            self._watched[run] = watched
        return self._watched[run]

    async def prepare(self) -> None:
        """Make the first page ahead: the scripts, and the report of a single run."""
        await self.scripts()
        if self._runs.single is not None and (watched := self.find(self._runs.single)) is not None:
            await watched.feed.look()

    async def scripts(self) -> Answer:
        """The scripts of all reports; they never change."""
        async with self._scripts_turn:
            if self._scripts is None or self._scripts.error:
                self._scripts = await self._pages.ask(Task())
            return self._scripts

    def front_page(self) -> str:
        """The list of runs, or the page of the one run that was named."""
        single = self._runs.single
        return self.list_page() if single is None else self.run_page(single) or self.list_page()

    def run_page(self, run: str) -> str | None:
        """The page of a run without its report, which follows; None if there is no such run."""
        watched = self.find(run)
        if watched is None:
            return None
        answer = watched.view.answer
        if answer is None and run in self._listed:
            answer = self._listed[run].answer
        return self._templates.get_template("run.html").render(
            name=name_of(watched.view.paths, answer),
            state=state_of(answer),
            sentence=sentence_of(answer),
            list=None if self._runs.single is not None else self.address("/"),
            report=self.address(f"/run/{run}/report"),
            events=self.address(f"/run/{run}/events"),
            library=self.address("/library.js"),
            drawing=self.address("/drawing.js"),
            script=self.address("/live.js"),
        )

    def list_page(self) -> str:
        """The list of runs."""
        rows = []
        for run, paths in self._runs.find().items():
            answer = self._listed[run].answer if run in self._listed else None
            name, address = name_of(paths, answer), self.address(f"/run/{run}")
            rows.append({"name": name, "address": address, "state": state_of(answer), "sentence": sentence_of(answer)})
        return self._templates.get_template("runs.html").render(
            rows=rows, events=self.address("/events"), script=self.address("/live.js")
        )

    def live_script(self) -> str:
        """The script that keeps a page up to date."""
        return self._templates.get_template("live.js").render()

    async def metrics(self, accepted: str) -> tuple[bytes, str]:
        """The metrics of all runs, and the type of the text.

        Runs are read again for it. A reader waits `FRESH_S` for that: a scrape that takes longer
        has what was known before, and the next one what was read meanwhile.
        """
        if self._scrape is None or self._scrape.done():
            self._scrape = asyncio.ensure_future(self.list_feed.look())
        known = any(view.answer is not None for view in self._listed.values())
        # Unlike `wait_for` this does not cancel a reading that takes longer.
        await asyncio.wait({self._scrape}, timeout=FRESH_S if known else None)
        answers = {run: view.answer for run, view in self._listed.items()}
        found = {
            run: answer.status for run, answer in answers.items() if answer is not None and answer.status is not None
        }
        return metrics_text(found, accepted)

    async def _refresh_list(self) -> bool:
        """Read runs that have changed, unread ones first; after a while, show what is known."""
        found = await asyncio.to_thread(self._runs.find)
        changed = found.keys() != self._listed.keys()
        known = self._listed
        self._listed = {run: known.get(run) or View(paths, self._statuses, self._clock) for run, paths in found.items()}
        begun_s = self._clock.monotonic_s()
        for view in sorted(self._listed.values(), key=lambda view: view.answer is not None):
            changed = await view.refresh() or changed
            # A long list is shown in parts: those that are not read yet come first at the next
            # look.
            if changed and self._clock.monotonic_s() - begun_s > INTERVAL_S:
                break
        return changed

    async def stop(self) -> None:
        """End everything that is in progress."""
        if self._scrape is not None:
            self._scrape.cancel()
        for feed in (self.list_feed, *(watched.feed for watched in self._watched.values())):
            feed.stop()
        await asyncio.gather(self._pages.stop(), self._statuses.stop())


def name_of(paths: RunPaths, answer: Answer | None) -> str:
    """The name of a run, and of its directory if it has another."""
    # A file name may have bytes that are not UTF-8, and a page may not.
    directory = paths.root.absolute().name.encode(errors="replace").decode()
    name = answer.status.name if answer is not None and answer.status is not None else directory
    return name if name == directory else f"{name} ({directory})"
