"""Architectures of trials: made by their morphs, from a trained parent, within the limits.

The morphs are applied where the architectures are read, once for each distinct claim.
"""

import json
from collections.abc import Iterator, Mapping

from aiperf.cli.units import GIB
from aiperf.records.bodies import TrialStarted
from aiperf.records.damage import Damage
from aiperf.records.fencing import CLOCK_TOLERANCE_MS
from analysis.reading.architectures import ArchitectureFacts, Claim
from analysis.reading.integrity.view import RunView, TrialTrace
from search_space.limits import ACTIVATION_BYTES, Limits, growth_limits
from search_space.morphisms import MAX_MORPHS


def check_origins(view: RunView, found: Mapping[str, ArchitectureFacts]) -> Iterator[Damage]:
    """Trials whose parent was not trained before, or that are not the initial architecture.

    `found` are the architectures that could be read.
    """
    initial = view.initial.hash if view.initial is not None else None
    trained = _trained(view)
    for trial, index in sorted(view.trials.items()):
        place, body = index.started, index.started.body
        if body.point > 0 or body.architecture not in found:
            continue
        if body.parent is None:
            if initial is not None and body.architecture != initial:
                yield place.damage(
                    "architecture",
                    f"trial {trial} without a parent trains {body.architecture}",
                    f"{initial}, the initial architecture",
                )
            continue
        if not 1 <= len(body.morphs) <= MAX_MORPHS:
            yield place.damage(
                "architecture", f"trial {trial} is {len(body.morphs)} morphs away from its parent", f"1 to {MAX_MORPHS}"
            )
        latest_ms = view.corrected(index.writer, place.time_ms) + CLOCK_TOLERANCE_MS
        if body.parent not in (initial, body.architecture) and trained.get(body.parent, latest_ms + 1) > latest_ms:
            yield place.damage(
                "architecture",
                f"trial {trial} has the parent {body.parent}",
                "the initial architecture, or one whose training had ended before",
            )


def _trained(view: RunView) -> dict[str, int]:
    """Find when each architecture's first training ended, by hash, on the primary's clock."""
    ended: dict[str, int] = {}
    for index in view.trials.values():
        if index.ended is not None:
            time_ms = view.corrected(index.writer, index.ended.time_ms)
            name = index.started.body.architecture
            ended[name] = min(time_ms, ended.get(name, time_ms))
    return ended


def claims_of(view: RunView) -> dict[Claim, TrialTrace[TrialStarted]]:
    """Collect how each architecture is said to be made, with the first trial of each claim."""
    claims: dict[Claim, TrialTrace[TrialStarted]] = {}
    for _, index in sorted(view.trials.items()):
        claim = _claim(view, index.started.body)
        if claim is not None:
            claims.setdefault(claim, index)
    return claims


def check_claims(
    view: RunView, claims: Mapping[Claim, TrialTrace[TrialStarted]], problems: Mapping[Claim, str | None]
) -> Iterator[Damage]:
    """Architectures that their morphs do not make, or that are beyond the limits."""
    for _, index in sorted(view.trials.items()):
        if index.started.body.point > 0:
            yield from _tuned_like_base(view, index)
    for claim, problem in problems.items():
        if problem is not None:
            place = claims[claim].started
            yield place.damage("architecture", f"{claim.architecture} of trial {place.body.trial}: {problem}")


def _tuned_like_base(view: RunView, index: TrialTrace[TrialStarted]) -> Iterator[Damage]:
    """A tuned trial has the parent of its base, which it names, and its morphs if they fit."""
    place, body = index.started, index.started.body
    base = view.trials.get(body.base) if body.base is not None else None
    if base is None:
        yield place.damage("conflict", f"trial {body.trial} tunes trial {body.base}", "a trial that has started")
        return
    own = base.started.body
    morphs = own.morphs if own.architecture == body.architecture else ()
    if (body.parent, body.morphs) != (own.parent, morphs):
        yield place.damage(
            "architecture",
            f"trial {body.trial} has the parent {body.parent} and {len(body.morphs)} morphs",
            f"{own.parent} and {len(morphs)}, as trial {own.trial}",
        )


def _claim(view: RunView, body: TrialStarted) -> Claim | None:
    """Read a start's claim about its architecture; None if it is made of no other known one."""
    source, tuned = body.parent or "", body.point > 0
    if tuned:
        base = view.trials.get(body.base) if body.base is not None else None
        if base is None:
            return None
        source = base.started.body.architecture
    size = body.hyperparameters.get("kernel_size")
    return Claim(
        architecture=body.architecture,
        source=source,
        morphs="[]" if tuned else json.dumps(body.morphs[: MAX_MORPHS + 1]),
        kernel_size=int(size) if tuned and isinstance(size, int) else None,
        tuned=tuned,
        limits=None if tuned else _limits(view, body),
    )


def _limits(view: RunView, body: TrialStarted) -> Limits | None:
    """The limits of the search; None if the initial architecture is not known here."""
    if view.initial is None:
        return None
    configured = view.config.replica.accelerator_memory_gib
    memory = body.memory_bytes if configured is None else round(configured * GIB)
    key = (memory, body.precision)
    if key not in view.limits:
        view.limits[key] = growth_limits(
            view.initial,
            view.config.search.max_growth,
            memory,
            int(view.defaults()["batch_size"]),
            ACTIVATION_BYTES.get(body.precision, min(ACTIVATION_BYTES.values())),
        )
    return view.limits[key]
