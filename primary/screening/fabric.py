"""The network in a screening: nodes meet in pairs, in rounds, then all at once, then each alone."""

import asyncio
import secrets
from collections.abc import Sequence

import msgspec

from aiperf.errors import MessageError
from aiperf.screening.fabric import Meeting, inside_rows, library_of, rounds, rows_of
from aiperf.screening.messages import Exchanged, Listening, Meet
from aiperf.wire.lines import encode
from primary.screening.visits import Screening, Together, Visit, answer_of, within

MOST_ROUNDS, MOST_QUICK_ROUNDS = 31, 3
"""Rounds of pairs: a node meets as many others. Each takes some seconds."""

PAIR_LIMIT_S, GROUP_LIMIT_S = 25.0, 120.0
"""Longest wait of ranks for each other, once for the meeting and once for an exchange.

Twice the first is below the patience with a node (`primary.screening.visits.PATIENCE_S`): the
partner of a node that hangs says so before it is taken for hung, too.
"""


class FabricPass:
    """One pass over the network, of the nodes that are there at its begin."""

    def __init__(self, screening: Screening, visits: Sequence[Visit], number: int) -> None:
        self._screening, self._number = screening, number
        self._visits = [visit for visit in visits if visit.lost is None]

    async def measure(self, names: Sequence[str]) -> list[Meeting]:
        """All meetings; what they say of each node is added to its last sheet.

        `names` are those of the nodes by replica.
        """
        pairs: list[Meeting] = []
        for pairing in rounds(len(self._visits))[: MOST_QUICK_ROUNDS if self._screening.quick else MOST_ROUNDS]:
            groups = [[self._visits[one], self._visits[other]] for one, other in pairing]
            pairs += await self._meetings(groups, names, PAIR_LIMIT_S)
        for visit in self._visits:
            if visit.lost is None:
                visit.add(rows_of(names[visit.replica], pairs))
        return pairs + await self._whole(names) + await self._inside(names)

    async def _whole(self, names: Sequence[str]) -> list[Meeting]:
        """All nodes at once, if they are more than a pair."""
        there = [visit for visit in self._visits if visit.lost is None]
        return await self._meetings([there], names, GROUP_LIMIT_S) if len(there) > 2 else []

    async def _inside(self, names: Sequence[str]) -> list[Meeting]:
        """The accelerators of each node, if it has several."""
        several = [visit for visit in self._visits if visit.lost is None and len(accelerators(visit)) > 1]
        if not several:
            return []
        meetings = await self._meetings([[visit] for visit in several], names, GROUP_LIMIT_S)
        for visit, meeting in zip(several, meetings, strict=True):
            if visit.lost is None:
                model = next(iter(accelerators(visit).values()))
                visit.add(inside_rows(meeting, model, library_of(meetings)))
        return meetings

    async def _meetings(self, groups: list[list[Visit]], names: Sequence[str], limit_s: float) -> list[Meeting]:
        """Groups that meet at the same time; a node that was lost before comes to none."""
        groups = [group for group in groups if all(visit.lost is None for visit in group)]
        together = Together(self._screening.limit_s, sum(map(len, groups)))
        meetings = await asyncio.gather(*(self._meeting(group, together, limit_s) for group in groups))
        return [
            msgspec.structs.replace(meeting, nodes=tuple(names[visit.replica] for visit in group))
            for group, meeting in zip(groups, meetings, strict=True)
        ]

    async def _meeting(self, group: list[Visit], together: Together, limit_s: float) -> Meeting:
        ranks = len(group) if len(group) > 1 else len(accelerators(group[0]))
        order = Meet(rank=0, size=ranks, token=secrets.token_hex(16), limit_s=limit_s, quick=self._screening.quick,
                     one_host=_one_host(group), inside=len(group) == 1)  # fmt: skip
        come: asyncio.Future[Listening | None] = asyncio.get_running_loop().create_future()
        answers: list[Exchanged] = []

        async def first(visit: Visit) -> None:
            try:
                answer = await _ask(visit, order)
                if isinstance(answer, Listening):
                    come.set_result(answer)
                    answer = await answer_of(visit)
                # In front, whenever it comes: the times of a meeting are those of rank 0.
                answers.insert(0, _last(answer))
            finally:
                # The other ranks wait for it, and would wait for ever.
                if not come.done():
                    come.set_result(None)

        async def other(visit: Visit, rank: int) -> None:
            # Its time begins with its order: it is not to blame for rank 0's.
            if (zero := await come) is None:
                return
            asked = msgspec.structs.replace(order, rank=rank, addresses=zero.addresses, port=zero.port)

            async def follow() -> None:
                answers.append(_last(await _ask(visit, asked)))

            await within(together, visit, follow)

        await asyncio.gather(
            within(together, group[0], lambda: first(group[0])),
            *(other(visit, rank) for rank, visit in enumerate(group[1:], 1)),
        )
        lost = next((visit.lost for visit in group if visit.lost is not None), "no answer")
        complete = len(answers) == len(group) and all(each.problem is None for each in answers)
        done = answers[0] if complete else None
        problem = next((each.problem for each in answers if each.problem), lost)
        return Meeting(
            nodes=(), ranks=ranks, number=self._number, library=done.library if done else "",
            times=done.times if done else (), problem=None if done else problem,
        )  # fmt: skip


def accelerators(visit: Visit) -> dict[str, str]:
    """The accelerators that a node exchanges by: models by name."""
    rows = visit.sheets[-1].rows if visit.sheets else ()
    return {row.device: row.kind for row in rows if row.device.startswith("gpu")}


def _one_host(group: Sequence[Visit]) -> bool:
    return len({visit.present.host for visit in group if visit.present is not None}) == 1


async def _ask(visit: Visit, order: Meet) -> object:
    assert visit.process is not None
    await visit.process.send(encode(order))
    return await answer_of(visit)


def _last(answer: object) -> Exchanged:
    if not isinstance(answer, Exchanged):
        raise MessageError(f"expected the times of an exchange, got {type(answer).__name__}")
    return answer
