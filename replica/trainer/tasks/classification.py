"""Signal against background: cross-entropy, and a classifier's measures in physics."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from replica.trainer.model.correct import CorrectImages
from replica.trainer.model.objectives import logits_of
from replica.trainer.tasks.contract import Measures
from replica.trainer.tasks.single import SingleNetwork
from workloads.settings.single import OneNetwork

Forward = Callable[..., Any]


class SignalClassification(SingleNetwork):
    """Classification of images as background or signal.

    Targets (N, 3): one-hot background and signal, and 1 if a selection by hand keeps the event.
    """

    columns = 5
    target_shape = (3,)
    correct: CorrectImages

    def __init__(self, settings: OneNetwork) -> None:
        super().__init__(settings)
        self.forward: Forward = logits_of(self.network)
        """Function that computes the logits; a framework may put a faster one in its place."""
        self.correct = CorrectImages()

    def losses(self, inputs: Any, targets: Any) -> tuple[Any, ...]:
        """The categorical cross-entropy of each example."""
        labels, logits = targets[:, :2], self.forward(inputs, training=True)
        self.correct.add(labels, logits)
        return (keras.losses.categorical_crossentropy(labels, logits, from_logits=True),)

    def rows(self, inputs: Any, targets: Any) -> Any:
        """Rows of the probability of signal, then 1 or 0 for: it is larger, it is signal, it is
        selected; then the loss."""
        logits = self.forward(inputs, training=False)
        loss = keras.losses.categorical_crossentropy(targets[:, :2], logits, from_logits=True)
        larger = ops.cast(logits[:, 1] > logits[:, 0], "float32")
        return ops.stack([ops.softmax(logits)[:, 1], larger, targets[:, 1], targets[:, 2], loss], axis=1)

    def measures(self, rows: NDArray[np.float32]) -> Measures:
        """Accuracy, AUC, and the share of the signal found at the selection's rate of false alarms.

        `signal_over_selection` divides that share by the selection's own (Kurth et al. 2017 report
        results "exceeding that achieved by selections on high-level physics-motivated features").
        It is 0, like all measures that need both classes, if one is missing.
        """
        score, larger, label, selected, loss = rows.astype(np.float64).T
        signal, background = label == 1, label == 0
        found = {"accuracy": float(np.mean(larger == label)), "loss": float(np.mean(loss))}
        if not signal.any() or not background.any():
            return {**found, "auc": 0.0, "signal_share": 0.0, "selection_share": 0.0, "signal_over_selection": 0.0}
        from sklearn.metrics import roc_auc_score, roc_curve  # noqa: PLC0415  (takes a second to load)

        false_alarms, shares, _ = roc_curve(label, score, drop_intermediate=False)
        # The cut on the network's score with as many false alarms as the selection by hand has.
        share = float(np.interp(np.mean(selected[background]), false_alarms, shares))
        selection = float(np.mean(selected[signal]))
        return {
            **found,
            "auc": float(roc_auc_score(label, score)),
            "signal_share": share,
            "selection_share": selection,
            "signal_over_selection": share / selection if selection else 0.0,
        }
