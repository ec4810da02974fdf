"""Pages of reports of hand-made runs."""

import json
from pathlib import Path
from typing import Any

from aiperf.records.bodies import PhaseBegan, RunEnded
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.wire.messages import Phase
from analysis.output.artifacts import write_report
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from search_space.morphisms import AddSkip, Deepen, morph_data
from tests.support.hand_made import T0_MS, HandMadeRun
from tests.support.nodes.measured import ROWS, measure_node

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"


def page_of(run: HandMadeRun) -> Path:
    data = read_run(run.paths)
    return write_report(run.paths.report, data, build_report(data))


def work(run: HandMadeRun, trial: int, begin_s: int, correct: int, **facts: Any) -> None:
    """A trial of two epochs, with its phases."""
    replica = (trial - 1) % 2
    run.at(begin_s).start_trial(trial, replica, **facts)
    phases: list[tuple[int, Phase]] = [(0, "start"), (2, "build"), (4, "train"), (12, "evaluate"), (14, "train")]
    for t_s, phase in phases:
        run.at(begin_s + t_s).replicas[replica].append(PhaseBegan(replica=replica, trial=trial, phase=phase))
    run.at(begin_s + 14).epoch(trial, 1, correct // 2, replica).at(begin_s + 20).epoch(trial, 2, correct, replica)


def resumed(root: Path) -> HandMadeRun:
    """Two replicas, a child of the initial architecture, an interruption, hostile texts."""
    run = HandMadeRun(root, {"run.name": HOSTILE, "training.max_epochs": 4}).at(0).release(100, replicas=2)
    own = {"device": HOSTILE, "cpus": 8, "stack": HOSTILE}
    measure_node(run, rows=tuple(each.model_copy(update=own) for each in ROWS), problems=[HOSTILE])
    deepen = Deepen("s4b1_brelu")
    skip = AddSkip("s2b1_relu", "s3b2_arelu")
    child = skip.apply(deepen.apply(run.architecture))
    ArchitectureStore(run.paths).save(child)
    work(run, 1, 1, 200)
    work(
        run,
        2,
        2,
        300,
        architecture=child.hash,
        parent=run.architecture.hash,
        morphs=(morph_data(deepen), morph_data(skip)),
    )
    run.at(30).primary.append(RunEnded(reason="interrupted", end_ms=T0_MS + 30_000))
    run.at(60).resume().rejoin(0).rejoin(1)
    work(run, 3, 62, 180, hyperparameters={"batch_size": 64, "note": HOSTILE})
    run.at(90).lose(1, HOSTILE)
    facts = {"host": "n1", "cpu_model": HOSTILE, "cpu_count": 8, "accelerators": 0}
    run.paths.system.write_text(json.dumps({"0": facts, "1": facts}))
    return run.end(100)
