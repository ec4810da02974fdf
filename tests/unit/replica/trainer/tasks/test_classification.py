"""What a physicist asks of a classifier: the signal found at the false alarms of a selection."""

import numpy as np
import pytest

from replica.trainer.model.builder import set_up
from replica.trainer.tasks.classification import SignalClassification
from tests.support.trainings.tasks import SMALL


@pytest.fixture(scope="module")
def task() -> SignalClassification:
    set_up("float32", seed=1)
    return SignalClassification(SMALL["classification"])


def test_the_share_of_the_signal_is_that_at_the_false_alarms_of_the_selection(task: SignalClassification) -> None:
    rng = np.random.default_rng(1)
    label = np.repeat([1.0, 0.0], 500)
    score = 1 / (1 + np.exp(-(rng.normal(0, 1, 1000) + 2 * label - 1)))
    selected = np.where(label == 1, rng.random(1000) < 0.6, rng.random(1000) < 0.2)
    rows = np.stack([score, score > 0.5, label, selected, np.ones(1000)], axis=1).astype(np.float32)
    measures = task.measures(rows)
    alarms = selected[label == 0].sum()
    # The cut that lets as many false alarms pass as the selection does.
    cut = np.sort(rows[label == 0, 0])[-alarms]
    found = np.mean(rows[label == 1, 0] >= cut)
    assert measures["signal_share"] == pytest.approx(found, abs=0.003)
    assert measures["selection_share"] == pytest.approx(selected[label == 1].mean())
    assert measures["signal_over_selection"] == pytest.approx(found / selected[label == 1].mean(), abs=0.005)
    assert measures["accuracy"] == pytest.approx(np.mean((score > 0.5) == (label == 1)))
    below = rows[label == 0, 0]
    assert measures["auc"] == pytest.approx(np.mean([(below < each).mean() for each in rows[label == 1, 0]]), abs=1e-6)
    assert task.measures(rows[:500])["signal_share"] == 0, "without background there are no false alarms"
