"""The checks of one draw: what is recorded next to what is found now."""

from collections.abc import Iterator
from dataclasses import replace

from aiperf.cli.units import si
from aiperf.errors import AiperfError, RunDirectoryError, TrialFailedError
from aiperf.facts import EpochFacts
from aiperf.records.entries import TrialLedger
from referee.audit.comparison import (
    NO_DIFFERENCE,
    Tolerance,
    breaking_off,
    difference_to_known,
    epoch_breaking_off,
    first_difference,
    largest_differences,
    problems_of_rows,
    relative,
    tolerance_of,
)
from referee.audit.draws import Claim
from referee.audit.findings import Check, Finding
from referee.audit.kept_weights import difference_of_weights, quality_of
from referee.audit.pace import LEAST_STEPS, difference_of_paces
from referee.audit.recorded import Recorded
from referee.audit.repetitions import Repeated, Repetitions


def check_rows(recorded: Recorded, claim: Claim) -> Finding:
    """The evidence of a drawn epoch: complete, possible, and that of its record."""
    expected = "the rows of the epoch's record, one a step"
    try:
        rows, of_trial = recorded.rows(claim.trial, claim.epoch)
        per_step = recorded.images_per_step(recorded.ledger(claim.trial))
        problems = problems_of_rows(rows, of_trial, per_step, recorded.facts(claim.trial, claim.epoch))
        found = "; ".join(problems) or f"{len(rows)} rows"
    except (RunDirectoryError, TrialFailedError) as error:
        problems = [str(error)]
        found = str(error)
    return _finding(claim, "rows", expected, found, not problems)


def check_steps(recorded: Recorded, claim: Claim, repeated: Repeated) -> Finding:
    """The first steps of a drawn trial, repeated."""
    if repeated.begun is None or repeated.recorded is None or repeated.outcome is None:
        return _finding(claim, "steps", "its first steps", f"cannot be repeated: {repeated.reason}", False)
    of = "" if repeated.begun.trial == claim.trial else f" of trial {repeated.begun.trial}, which it resumes"
    expected = f"losses and gradient norms of steps 1 to {len(repeated.recorded)}{of}"
    again = repeated.outcome.rows
    if again is None:
        return _finding(claim, "steps", expected, "the repetition has written no evidence", False)
    tolerance = tolerance_for(recorded, repeated.begun)
    difference = first_difference(repeated.recorded, again[: len(repeated.recorded)], tolerance)
    difference = difference or _steps_breaking_off(repeated)
    largest = largest_differences(repeated.recorded, again)
    found = difference or (
        "equal" if largest == NO_DIFFERENCE else f"within the tolerances; largest differences: {largest}"
    )
    return _finding(claim, "steps", expected, found, not difference)


def tolerance_for(recorded: Recorded, begun: TrialLedger) -> Tolerance:
    """The tolerance for repeating a trial on this machine."""
    precision = begun.started.precision if begun.started is not None else "float32"
    return tolerance_of(precision, recorded.on_cpus(begun))


def check_pace(recorded: Recorded, claim: Claim, repeated: Repeated) -> Finding | str:
    """The pace of a drawn epoch next to that of the repetition, or why they cannot be compared."""
    if repeated.outcome is None or repeated.recorded is None:
        return "nothing was repeated"
    if other := recorded.other_device(claim.trial):
        return other
    claimed, again = recorded.pace(claim), repeated.outcome.pace
    if claimed is None or again is None or len(repeated.recorded) < LEAST_STEPS:
        return f"the repetition was too short, give it more than {len(repeated.recorded)} --steps"
    found, passed = difference_of_paces(claimed, again, recorded.on_cpus(recorded.ledger(claim.trial)))
    return _finding(claim, "pace", f"{si(claimed)} images per second", found, passed)


def _steps_breaking_off(repeated: Repeated) -> str:
    """The step at which the run breaks off from two equal repetitions, in words; "" if none."""
    first, second = (None if each is None else each.rows for each in (repeated.outcome, repeated.again))
    if first is None or second is None or repeated.recorded is None:
        return ""
    step = breaking_off(repeated.recorded, first)
    # Repetitions that differ from each other show a machine whose sums are not repeatable: then a
    # difference from the run says nothing against it.
    if step is None or first[:step].tobytes() != second[:step].tobytes():
        return ""
    return f"{TO_THE_BIT} up to step {step - 1}, and others from step {step} on"


TO_THE_BIT = "two repetitions are equal to the last bit; the run has the same bits"


def check_retrained(recorded: Recorded, claim: Claim, repeated: Repeated) -> Finding:
    """The first epochs of a drawn trial, trained again in full."""
    if repeated.begun is None or repeated.outcome is None or not repeated.outcome.trained:
        reason = repeated.reason or "the repetition has reported no epoch"
        return _finding(claim, "retrain", "its first epoch", f"cannot be repeated: {reason}", False)
    trained = repeated.outcome.trained
    recorded_too = recorded.first_epochs(repeated.begun, len(trained))
    allowed = tolerance_for(recorded, repeated.begun).most
    for was, again in zip(recorded_too, trained, strict=False):
        same_images = (again.images_trained, again.images_evaluated) == (was.images_trained, was.images_evaluated)
        if not same_images or relative(was.loss, again.loss) > allowed or _other_count(was, again, allowed):
            return _finding(claim, "retrain", _training(was), f"{_training(again)} (allowed: {allowed:.0%})", False)
    broken = _epochs_breaking_off(recorded_too, repeated)
    was, again = recorded_too[-1], trained[len(recorded_too) - 1]
    found = broken or f"{_training(again)} (allowed: {allowed:.0%})"
    return _finding(claim, "retrain", _training(was), found, not broken)


def _epochs_breaking_off(recorded: list[EpochFacts], repeated: Repeated) -> str:
    """The epoch at which the run breaks off from two equal repetitions, in words; "" if none."""
    if repeated.outcome is None or repeated.again is None:
        return ""
    first, second = repeated.outcome.trained, repeated.again.trained
    epoch = epoch_breaking_off(recorded, first)
    if epoch is None or [each.weights for each in first[:epoch]] != [each.weights for each in second[:epoch]]:
        return ""
    return f"{TO_THE_BIT} up to epoch {epoch - 1}, and others from epoch {epoch} on"


def _other_count(was: EpochFacts, again: EpochFacts, allowed: float) -> bool:
    """True if another share of the trained images was right than in a repetition.

    Trainings that end with the same weights, to the last bit, have had the same answers.
    """
    if was.correct_trained is None or again.correct_trained is None:
        return False
    is_same = was.weights is not None and was.weights == again.weights
    return abs(was.correct_trained - again.correct_trained) > (0 if is_same else allowed * was.images_trained)


def _training(facts: EpochFacts) -> str:
    right = "" if facts.correct_trained is None else f", {facts.correct_trained} of them right"
    return f"epoch {facts.epoch}: loss {facts.loss:.5g} over {facts.images_trained} images{right}"


def check_weights(recorded: Recorded, claim: Claim, repetitions: Repetitions, required: bool) -> Iterator[Finding]:
    """The kept weights of a drawn trial, evaluated; no finding if none are kept and none need be.

    With `required` they must be of the drawn epoch.
    """
    kept = recorded.weights_of(claim.trial, claim.epoch if required else None)
    if kept is None:
        found = "they are not kept, so the error of the run cannot be checked"
        # The error of the run stands on this epoch alone, so it must be possible to check it.
        if required:
            yield replace(_finding(claim, "weights", f"weights of epoch {claim.epoch}", found, False), done=False)
        return
    try:
        facts = repetitions.evaluation_of(kept)
        difference = difference_of_weights(recorded, kept, facts)
    except AiperfError as error:
        yield _finding(claim, "weights", f"weights of epoch {kept.epoch}", str(error), False)
        return
    yield from check_memory(claim, facts)
    expected = f"epoch {kept.epoch}: {quality_of(recorded.facts(kept.trial, kept.epoch))}" if kept.epoch else "an epoch"
    yield _finding(claim, "weights", expected, difference or quality_of(facts), not difference)


def check_memory(claim: Claim, facts: EpochFacts) -> Iterator[Finding]:
    """Kept weights must know the validation images no better than those they were trained on."""
    known = facts.training_measures
    if known is None or facts.correct is None or not known["images"] or not facts.images_evaluated:
        return
    images, correct = round(known["images"]), round(known["correct"])
    difference = difference_to_known(facts.correct, facts.images_evaluated, correct, images)
    found = difference or f"{correct} of {images} training images correct"
    yield _finding(
        claim, "memory", f"{quality_of(facts)} at validation, and no fewer in training", found, not difference
    )


def _finding(claim: Claim, check: Check, expected: str, found: str, passed: bool) -> Finding:
    return Finding(claim.trial, claim.epoch, check, expected, found, passed)
