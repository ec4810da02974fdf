"""Signal against background: cross-entropy, and what a physicist asks of a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from replica.trainer.tasks.contract import Measures
from replica.trainer.tasks.single import SingleNetwork


class SignalClassification(SingleNetwork):
    """Images to probabilities of background and signal.

    Targets (N, 3): one-hot background and signal, and 1 if a selection by hand keeps the event.
    """

    columns = 5
    target_shape = (3,)

    def __init__(self, networks: Mapping[str, Any], seed: int = 0) -> None:
        super().__init__(networks, seed)

    def losses(self, inputs: Any, targets: Any) -> tuple[Any, ...]:
        """Categorical cross-entropy."""
        outputs = self.network(inputs, training=True)
        return (keras.losses.categorical_crossentropy(targets[:, :2], outputs),)

    def rows(self, inputs: Any, targets: Any) -> Any:
        """Probability of signal, is it the larger one, is it signal, is it selected, loss."""
        outputs = ops.cast(self.network(inputs, training=False), "float32")
        loss = keras.losses.categorical_crossentropy(targets[:, :2], outputs)
        larger = ops.cast(outputs[:, 1] > outputs[:, 0], "float32")
        return ops.stack([outputs[:, 1], larger, targets[:, 1], targets[:, 2], loss], axis=1)

    def measures(self, rows: NDArray[np.float32]) -> Measures:
        """Accuracy, AUC, and the share of the signal found at the false alarms of the selection.

        `signal_over_selection` divides that share by the selection's own (Kurth et al. 2017: results
        "exceeding that achieved by selections on high-level physics-motivated features"). It is 0,
        as all that needs both classes, where one is missing.
        """
        score, larger, label, selected, loss = rows.astype(np.float64).T
        signal, background = label == 1, label == 0
        found = {"accuracy": float(np.mean(larger == label)), "loss": float(np.mean(loss))}
        if not signal.any() or not background.any():
            return {**found, "auc": 0.0, "signal_share": 0.0, "selection_share": 0.0, "signal_over_selection": 0.0}
        from sklearn.metrics import roc_auc_score, roc_curve  # noqa: PLC0415  (takes a second to load)

        false_alarms, shares, _ = roc_curve(label, score, drop_intermediate=False)
        share = float(np.interp(np.mean(selected[background]), false_alarms, shares))
        selection = float(np.mean(selected[signal]))
        return {
            **found,
            "auc": float(roc_auc_score(label, score)),
            "signal_share": share,
            "selection_share": selection,
            "signal_over_selection": share / selection if selection else 0.0,
        }
