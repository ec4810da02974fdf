"""The events of a hybrid training in virtual time: updates in the order in which servers get them.

The only choice of the model is the pace of groups and servers. Queues are first come, first served;
a root sends to all servers at once, and goes on when all have answered. The transfers of a server
take all groups equally long, so that every server gets the updates in the same order. Then the
staleness of an update is the number of updates that came since the group's last answer.
"""

import random
from bisect import bisect_right
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from operator import itemgetter

from msgspec.structs import replace

from aiperf.facts import ExchangeFacts, ServerFacts
from aiperf.rules.asynchrony import RETURNS
from replica.trainer.servers.tally import Tally
from replica.trainer.simulated_groups.paces import ExchangePlan

LOST = "simulated"
"""Reason of the loss of a group."""


@dataclass(frozen=True, slots=True)
class Reported:
    """Work of groups and servers since the last report."""

    images: int
    """Images of the updates that were applied since then."""
    groups: tuple[ExchangeFacts, ...]
    servers: tuple[ServerFacts, ...]


class _Server:
    """One server: its queue, and its deaths."""

    def __init__(self, plan: ExchangePlan, number: int) -> None:
        self.pace = plan.servers[number]
        self._returns_s = plan.server_returns_s
        self._free_s = 0.0
        """Time at which it has done all that has come."""
        self._kills_s = list(plan.server_lives_s.get(number, ()))
        """Times at which it will be killed; but for the first, each from the start before."""
        self._killed = 0
        self.restarts = 0
        """Number of times that it was killed since the last report."""
        self.ends_s = inf
        """Time at which it is killed once more than it is started again; later times do not count.
        It is known when an update has come since."""

    def serve(self, arrives_s: float) -> float:
        """Take an update that arrives at a time; give the time at which it is applied."""
        begins_s, kills_s = max(arrives_s, self._free_s), self._kills_s
        self._free_s = begins_s + self.pace.service_s
        # What was not applied when it was killed begins anew when it is back.
        while kills_s and kills_s[0] < self._free_s:
            killed_s = kills_s.pop(0)
            self.restarts += 1
            self._killed += 1
            if self._killed == RETURNS + 1:
                self.ends_s = killed_s
            back_s = killed_s + self._returns_s
            # The next life begins when it is back, and those behind it when that one has ended.
            kills_s[:] = [back_s + life_s for life_s in kills_s[:1]] + kills_s[1:]
            self._free_s = max(begins_s, back_s) + self.pace.service_s
        return self._free_s


class GroupsInTime:
    """A training of several groups; times are seconds since its begin.

    For each epoch call `train`, `validate` and `report`. Before the last `validate`, and after
    `stop`, call `await_others`.
    """

    def __init__(self, plan: ExchangePlan) -> None:
        self._plan = plan
        self._drawn = random.Random(f"groups {plan.seed} {plan.first_epoch}")
        self.now_s = 0.0
        """Time of group 0."""
        self._tallies = [Tally(plan.first_epoch) for _ in plan.groups]
        self._seen = [0] * len(plan.groups)
        """Version of the values that each group has."""
        self._servers = [_Server(plan, number) for number in range(len(plan.servers))]
        self._version = 0
        self._applied_s: list[float] = []
        """Times at which updates were applied, since the last report."""
        self._applied_images: list[int] = []
        """Images of these updates, summed up."""
        self._finished: list[tuple[float, ExchangeFacts]] = []
        """Facts of epochs of groups, which root 0 gets at these times."""
        self._stopped = False
        self._reported_s = 0.0
        self._update_bytes = 2 * sum(server.bytes for server in plan.servers)
        self._sends: list[tuple[float, int]] = []
        """Heap of the next message of each group: time and group."""
        self._lives = {group: list(lives) for group, lives in plan.lives_s.items()}
        """Lives that groups have before them: seconds each."""
        self._dies_s: dict[int, float] = {}
        """Times at which groups are lost."""
        self._ready_s: dict[int, float] = {}
        """Times at which lost groups are ready to come back."""
        for group in range(len(plan.groups)):
            self._live(group, 0.0)
            self._begin(group, 0.0)

    # The events.

    def _begin(self, group: int, from_s: float) -> None:
        """Let a group begin an epoch; no-op if no image is for it."""
        if self._plan.steps(group):
            self._compute(group, from_s)

    def _compute(self, group: int, from_s: float) -> None:
        """Let a group compute the gradients of its next step."""
        pace, tally = self._plan.groups[group], self._tallies[group]
        computing_s, wait_s = pace.draw(self._drawn)
        tally.computing_s += computing_s
        tally.group_s += wait_s + pace.all_reduce_s
        sends_s = from_s + computing_s + wait_s + pace.all_reduce_s
        if sends_s < self._dies_s.get(group, inf):
            heappush(self._sends, (sends_s, group))
            return
        # It may have died while it waited for an answer: the update was applied, and counts.
        lost_s = max(from_s, self._dies_s[group])
        facts = replace(tally.facts(group, 0), computing_s=0.0, group_s=0.0, waiting_s=0.0, lost=LOST)
        self._finished.append((lost_s, facts))
        self._ready_s[group] = lost_s + self._plan.returns_s

    def _live(self, group: int, from_s: float) -> None:
        """Let the next life of a group begin."""
        self._dies_s[group] = from_s + self._lives[group].pop(0) if group in self._lives else inf

    def _admit(self, epoch: int) -> None:
        """Let lost groups that are ready begin, not before this epoch."""
        for group, ready_s in list(self._ready_s.items()):
            first = max(epoch, self._tallies[group].epoch + 1)
            if ready_s <= self.now_s and first <= self._plan.epochs and self._lives[group]:
                del self._ready_s[group]
                self._tallies[group] = Tally(first, returned=True)
                self._seen[group] = self._version
                self._live(group, self.now_s)
                self._compute(group, self.now_s)

    def _until(self, time_s: float) -> None:
        """Let all other groups work until a time of group 0."""
        while self._sends and self._sends[0][0] <= time_s:
            self._exchange(*heappop(self._sends))

    def _exchange(self, sent_s: float, group: int) -> float:
        """Bring an update to the servers and back; give the time at which the group goes on."""
        pace, tally, plan = self._plan.groups[group], self._tallies[group], self._plan
        applied_s = answered_s = sent_s
        for server in self._servers:
            served_s = server.serve(sent_s + server.pace.transfer_s)
            applied_s = max(applied_s, served_s)
            answered_s = max(answered_s, served_s + server.pace.transfer_s)
        images = min(plan.step_images, plan.share(group) - tally.images)
        tally.add(images, self._version - self._seen[group])
        self._version += 1
        self._seen[group] = self._version
        self._applied_s.append(applied_s)
        self._applied_images.append((self._applied_images[-1] if self._applied_images else 0) + images)
        tally.waiting_s += answered_s - sent_s
        tally.group_s += pace.broadcast_s
        goes_on_s = answered_s + pace.broadcast_s
        if group:
            self._go_on(group, goes_on_s)
        return goes_on_s

    def _go_on(self, group: int, from_s: float) -> None:
        """Let a group other than 0 begin its next step, or epoch, or end."""
        tally = self._tallies[group]
        if tally.steps < self._plan.steps(group) and not self._stopped:
            self._compute(group, from_s)
            return
        self._finished.append((from_s, tally.facts(group, tally.steps * self._update_bytes)))
        self._tallies[group] = Tally(tally.epoch + 1)
        if tally.epoch < self._plan.epochs and not self._stopped:
            self._begin(group, from_s)

    # The training, as group 0 sees it.

    @property
    def ends_s(self) -> float:
        """Time at which the last death of a server ends the training; infinite if none is known."""
        return min(server.ends_s for server in self._servers)

    def train(self) -> float:
        """Let group 0 train an epoch; give the seconds that it takes."""
        began_s = self.now_s
        tally = self._tallies[0]
        self._admit(tally.epoch)
        while tally.steps < self._plan.steps(0):
            sent_s, group = heappop(self._sends)
            goes_on_s = self._exchange(sent_s, group)
            if group == 0:
                self.now_s = goes_on_s
                if tally.steps < self._plan.steps(0):
                    self._compute(0, goes_on_s)
        self._until(self.now_s)
        self._finished.append((self.now_s, tally.facts(0, tally.steps * self._update_bytes)))
        self._tallies[0] = Tally(tally.epoch + 1)
        return self.now_s - began_s

    def validate(self, seconds: float) -> None:
        """Let group 0 evaluate for some seconds, and take the servers' values; others go on."""
        self.now_s += seconds
        self._until(self.now_s)
        self._seen[0] = self._version
        self._begin(0, self.now_s)

    def stop(self) -> None:
        """End the training at its target: every other group ends with its next update."""
        # Group 0 does not train what it has begun.
        self._sends = [send for send in self._sends if send[1] != 0]
        heapify(self._sends)
        self._stopped = True

    def await_others(self) -> float:
        """Let all other groups end, and give the seconds that group 0 waits for them."""
        began_s = self.now_s
        self._until(inf)
        self.now_s = max([self.now_s, *(at_s for at_s, _ in self._finished)])
        return self.now_s - began_s

    def images_at(self, time_s: float) -> int:
        """Images that were applied until a time, since the last report."""
        # The times rise: every server applies updates in the order in which they are exchanged.
        place = bisect_right(self._applied_s, time_s)
        return self._applied_images[place - 1] if place else 0

    def report(self, epoch: int) -> Reported:
        """Report what groups and servers have done since the last report, as of group 0's time."""
        now_s, images = self.now_s, self.images_at(self.now_s)
        place = bisect_right(self._applied_s, now_s)
        self._finished.sort(key=itemgetter(0))
        groups = tuple(facts for at_s, facts in self._finished if at_s <= now_s)
        passed_s = max(now_s - self._reported_s, 1e-9)
        servers = tuple(
            ServerFacts(
                epoch=epoch,
                server=number,
                updates=place,
                busy_share=min(1.0, place * server.pace.service_s / passed_s),
                restarts=server.restarts or None,
            )
            for number, server in enumerate(self._servers)
        )
        for server in self._servers:
            server.restarts = 0
        self._finished = [found for found in self._finished if found[0] > now_s]
        self._applied_s = self._applied_s[place:]
        self._applied_images = [total - images for total in self._applied_images[place:]]
        self._reported_s = now_s
        return Reported(images, groups, servers)
