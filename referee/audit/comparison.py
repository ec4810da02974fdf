"""Comparison of a repeated training with its evidence, within stated tolerances.

A repetition with the same number of threads on a processor like the run's gives the same bits. With
another number, or on another device, sums are added in another order: the first step differs by
rounding alone, and each update carries the difference on. From He initialisation and at the
recipe's learning rate training is chaotic at first: differences grow about tenfold with each step,
and in one training of seventeen some hundredfold. Measured for ResNet-50 on the embedded digits in
float32, with one thread, two threads, and without AVX-512 (34 seeds, 102 pairs):

    step                            1       2       3       4       mean of 5 to 24
    difference of the loss, median  1.5e-7  7.8e-7  8.7e-6  1.6e-3
    largest                         6.6e-7  2.2e-4  3.9e-2  0.17    0.22
    of the gradient norm, median    2.2e-7  6.0e-6  4.0e-4  7.8e-3
    largest                         3.2e-5  1.3e-2  0.10    0.09

In bfloat16, two threads against one (12 seeds), and a processor without instructions for it against
one with them (4), the largest differences of 40 pairs, and the means of steps 3 to 12 and 3 to 24:

    step                       1       2       3       mean to 12  mean to 24
    difference of the loss     2.3e-3  5.2e-2  0.15    0.22        0.18
    of the gradient norm       9.8e-3  7.8e-2  0.11

Where a repetition begins with the same bits as the run, it must go on with them, too: a run that
breaks off is repeated once more, and accused if both repetitions agree to the last bit. Elsewhere
single steps are compared while the tolerance is below a limit, and of all later ones the means.
The images trained on show in the loss of step 1, the layers trained in its gradient norm, and the
update in the loss of step 2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.facts import EpochFacts


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Largest relative differences of the loss and the gradient norm of a step."""

    loss: float
    norm: float
    """Largest difference of the norm, like that of the loss at step 1."""
    growth: float = 15.0
    """The factor from step to step: the measured growth with a reserve."""
    most: float = 0.3
    """Steps with larger tolerances are compared by their mean, and that within this."""

    def at(self, step: int) -> tuple[float, float]:
        """The tolerances of loss and gradient norm at a step, counted from 1."""
        # Limited, because a larger power raises OverflowError.
        factor = self.growth ** min(step - 1, 100)
        return self.loss * factor, self.norm * factor


ACCELERATED = "accelerated "

TOLERANCES = {
    # At step 3 the largest difference is four thousand times the median one: its tolerance
    # follows from the largest.
    "float32": Tolerance(loss=1e-4, norm=2e-3, growth=40.0),
    "mixed_bfloat16": Tolerance(loss=1.5e-2, norm=5e-2),
    "mixed_float16": Tolerance(loss=1e-2, norm=1e-1),
    ACCELERATED + "float32": Tolerance(loss=5e-3, norm=5e-2),
    ACCELERATED + "mixed_bfloat16": Tolerance(loss=2e-2, norm=1e-1),
}
"""Tolerances by arithmetic. Those of float32 and bfloat16 on CPUs are at least four times what is
measured; others follow from the bits of the mantissa of convolutions: 10 in TF32 and float16, 7 in
bfloat16."""

LEAST_FOR_MEAN = 20
"""Steps from which on a mean is compared: those of fewer differ too much (table above)."""


def tolerance_of(precision: str, on_cpus: bool) -> Tolerance:
    """The tolerance for an arithmetic: GPUs compute float32 convolutions in TF32 (10 bits)."""
    names = (precision,) if on_cpus else (ACCELERATED + precision, precision)
    found = (TOLERANCES[name] for name in names if name in TOLERANCES)
    return next(found, TOLERANCES[ACCELERATED + "mixed_bfloat16"])


ROWS_MEAN = 2e-3
"""Relative difference allowed between an epoch's loss and the mean of its rows: the last steps of
several ranks may be of fewer images than assumed.
"""

REPEATED_ROWS = 0.01
"""Share of a trial's rows that may be equal in loss and norm by chance: two float32 rarely are."""

CORRECT_SHARE = 0.002
"""Share of the validation images that may be classified otherwise when weights are evaluated again:
rounding moves images at the border of two classes.
"""


def correct_tolerance(images: int) -> int:
    """Images that may be classified otherwise: 0.2 %, at least one."""
    return max(1, math.floor(CORRECT_SHARE * images))


DEVIATIONS = 4.0
"""Standard deviations of the difference of two accuracies that chance may give: one in 30,000."""

EASIER = 0.8
"""Least error of validation images in that of training images, if validation is easier."""


def difference_to_known(correct: int, images: int, known_correct: int, known_images: int) -> str:
    """A sign that weights were trained on validation images, in words; empty if there is none.

    A network classifies the images that it was trained on at least as well as others. The errors
    are compared with `DEVIATIONS` of their difference, if both are binomial.
    """
    error, known = 1 - correct / images, 1 - known_correct / known_images
    # Of no errors, as if there were half of one.
    variance = sum(
        max(rate, 0.5 / count) * (1 - rate + 0.5 / count) / count
        for rate, count in ((error, images), (known, known_images))
    )
    if error >= EASIER * known - DEVIATIONS * math.sqrt(variance):
        return ""
    return f"an error of {known:.2%} on {known_images} training images, of {error:.2%} on {images} validation images"


def first_difference(recorded: NDArray[Any], repeated: NDArray[Any], tolerance: Tolerance) -> str:
    """The first step whose loss or gradient norm differs beyond the tolerance; empty if none does.

    Both are rows of `aiperf.run_directory.step_evidence` of the same steps from 1 on, (steps,).
    """
    if len(repeated) != len(recorded):
        return f"{len(repeated)} steps instead of {len(recorded)}"
    for step, (record, again) in enumerate(zip(recorded, repeated, strict=True), start=1):
        for name, allowed in zip(FIELDS, tolerance.at(step), strict=True):
            was, is_now = float(record[name]), float(again[name])
            if allowed <= tolerance.most and not relative(was, is_now) <= allowed:  # also a NaN
                return f"step {step}: {name} {was:.7g}, repeated {is_now:.7g} (allowed: {allowed:.2g} of it)"
    return _difference_of_means(recorded, repeated, tolerance)


FIELDS = ("loss", "gradient_norm")


EQUAL_AT_FIRST = 4
"""Steps that are equal to the last bit only if both computers add in the same order: of others the
second one differs already (table above)."""


def breaking_off(recorded: NDArray[Any], repeated: NDArray[Any]) -> int | None:
    """The first step that differs after `EQUAL_AT_FIRST` that are equal to the last bit; None if
    there is none. Rows as in `first_difference`."""
    least = min(len(recorded), len(repeated))
    same = np.all([recorded[name][:least] == repeated[name][:least] for name in FIELDS], axis=0)
    if same.all() or not same[:EQUAL_AT_FIRST].all() or least < EQUAL_AT_FIRST:
        return None
    return int(np.argmin(same)) + 1  # the first that is False


def epoch_breaking_off(recorded: Sequence[EpochFacts], repeated: Sequence[EpochFacts]) -> int | None:
    """The first epoch whose weights differ after one or more whose weights are equal to the last
    bit; None if there is none. Both from epoch 1 on."""
    same = [was.weights == again.weights for was, again in zip(recorded, repeated, strict=False)]
    return same.index(False) + 1 if same[:1] == [True] and not all(same) else None


def _difference_of_means(recorded: NDArray[Any], repeated: NDArray[Any], tolerance: Tolerance) -> str:
    """A difference between the mean losses of the steps that are not compared one by one."""
    # There always is one: tolerances grow with the steps.
    first = next(step for step in range(1, 200) if tolerance.at(step)[0] > tolerance.most)
    was, is_now = recorded["loss"][first - 1 :], repeated["loss"][first - 1 :]
    if len(was) < LEAST_FOR_MEAN:
        return ""
    # In double precision: the rows are float32, and a sum of many of them loses digits.
    before, after = float(was.mean(dtype=np.float64)), float(is_now.mean(dtype=np.float64))
    if relative(before, after) <= tolerance.most:
        return ""
    return f"mean loss from step {first} on {before:.5g}, repeated {after:.5g} (allowed: {tolerance.most:.2g} of it)"


NO_DIFFERENCE = "none"


def largest_differences(recorded: NDArray[Any], repeated: NDArray[Any]) -> str:
    """The largest relative differences of losses and norms, in words; `NO_DIFFERENCE`."""
    pairs = list(zip(recorded, repeated, strict=False))
    loss = max((relative(float(a["loss"]), float(b["loss"])) for a, b in pairs), default=0.0)
    norm = max((relative(float(a["gradient_norm"]), float(b["gradient_norm"])) for a, b in pairs), default=0.0)
    return f"loss {loss:.1e}, norm {norm:.1e}" if loss or norm else NO_DIFFERENCE


def relative(was: float, is_now: float) -> float:
    """The difference of two numbers relative to the larger one; 0 if both are equal."""
    if was == is_now:
        return 0.0
    return abs(was - is_now) / max(abs(was), abs(is_now))


def problems_of_rows(rows: NDArray[Any], trial_rows: NDArray[Any], per_step: int, facts: EpochFacts) -> list[str]:
    """Reasons why the rows of an epoch cannot be those of its training.

    `rows` are the epoch's, `trial_rows` all of its trial; `per_step` is the number of images of all
    ranks in a step, fewer in the last one.
    """
    found = []
    steps = math.ceil(facts.images_trained / per_step)
    if list(rows["step"]) != list(range(1, len(rows) + 1)) or len(rows) != steps:
        return [f"{len(rows)} rows, the images need steps 1 to {steps}"]
    if not np.all(np.isfinite(rows["loss"])):
        found.append("a loss is not a number")
    if not np.any(rows["gradient_norm"] > 0):
        found.append("no gradient has a norm above zero")
    if repeated := _repeated(rows, trial_rows):
        found.append(f"{repeated} of {len(rows)} rows occur twice in the trial")
    mean = _mean_loss(rows, per_step, facts.images_trained)
    if not relative(facts.loss, mean) <= ROWS_MEAN:
        found.append(f"the mean loss of the rows is {mean:.6g}, the epoch's {facts.loss:.6g}")
    return found


def _repeated(rows: NDArray[Any], trial_rows: NDArray[Any]) -> int:
    """Rows whose loss and norm occur more than once, if they are more than chance allows."""
    pairs = [(float(row["loss"]), float(row["gradient_norm"])) for row in trial_rows]
    counts: dict[tuple[float, float], int] = {}
    for pair in pairs:
        counts[pair] = counts.get(pair, 0) + 1
    own = ((float(row["loss"]), float(row["gradient_norm"])) for row in rows if np.isfinite(row["gradient_norm"]))
    # Made-up evidence is often copied evidence: two float32 of different steps are rarely both
    # equal.
    repeated = sum(counts.get(pair, 0) > 1 for pair in own)
    return repeated if repeated > REPEATED_ROWS * len(rows) else 0


def _mean_loss(rows: NDArray[Any], per_step: int, images: int) -> float:
    losses = rows["loss"].astype(np.float64)
    last = images - per_step * (len(losses) - 1)
    return float((losses[:-1].sum() * per_step + losses[-1] * last) / images)
