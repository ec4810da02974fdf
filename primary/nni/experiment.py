"""The NNI experiment of a run, from its start to its end, for `aiperf run --manager nni`.

The primary conducts the run. This process starts NNI, relays the output of the primary, and stops
NNI afterwards.
"""

import atexit
import contextlib
import errno
import getpass
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path

from aiperf.cli.waiting import finish
from aiperf.clock import Clock
from aiperf.config.settings import RunConfig
from aiperf.errors import EnvironmentNotReadyError, RunFailedError, UsageError
from aiperf.files import why_unwritable, write_atomically
from aiperf.host import this_host
from aiperf.machine.addresses import without_proxy
from aiperf.processes import SAFE_PATH, last_lines, python_module
from aiperf.records.history_files import HistoryReader
from aiperf.records.ledger import Ledger
from aiperf.run_directory.checksums import sealed
from aiperf.run_directory.claim import identity_of, is_held_here
from aiperf.run_directory.ownership import check_hands
from aiperf.run_directory.paths import RunPaths
from aiperf.signals import heeded
from aiperf.storage.logs import open_log
from aiperf.storage.patience import FINAL, PATIENCE
from primary import preflight
from primary.context import PROBE_INTERVAL_S, storage_note
from primary.launchers import end_leftovers
from primary.managers import EndReason
from primary.nni.library import CustomAlgorithmConfig, Experiment, ExperimentConfig, nni
from primary.nni.portal import LOOPBACK, PATIENT, POLICY, PRELOADED
from primary.nni.start import START_TIMEOUT_S, is_kept, patient_start, state_of
from primary.nni.tuner import KEPT_VISIBLE, AiperfTuner
from primary.resumption import prepare_resumption, take_claim

LOOK_INTERVAL_S = 1.0
TRIALS_END_S = 20.0
"""Seconds for NNI's trials to report the end of the run."""

PACKAGES = Path(__file__).parents[2]
"""The tuner's process imports from here before anything else, as NNI puts it on its path."""


def experiment_config(config: RunConfig, paths: RunPaths) -> ExperimentConfig:
    """The run as an experiment of NNI."""
    run = str(paths.root.absolute())
    result = ExperimentConfig("local")
    result.experiment_name = config.run.name
    # For display: the replicas sample the space, not NNI.
    result.search_space = json.loads(paths.space.read_bytes()) if paths.space.exists() else {}
    result.trial_command = f"exec {shlex.join(python_module('primary.nni.trial', '--run', run))}"
    result.trial_code_directory = run
    result.trial_concurrency = config.run.replicas
    # Until the replicas are released; then the tuner sets the time that is left of the run.
    result.max_experiment_duration = f"{ceil(config.start_limit + config.run.duration)}s"
    name = f"{AiperfTuner.__module__}.{AiperfTuner.__qualname__}"
    result.tuner = CustomAlgorithmConfig(class_name=name, code_directory=str(PACKAGES), class_args={"run": run})
    result.experiment_working_directory = config.nni.directory or str(paths.nni_files.absolute())
    return result


class StorageNote:
    """Says that the run directory cannot be written, where the primary's own words would go."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._refused = False
        self._next_s = clock.monotonic_s()

    def look(self) -> None:
        """Try to write from time to time, and say what has changed."""
        if self._clock.monotonic_s() < self._next_s:
            return
        reason = why_unwritable(self._folder)
        self._next_s = self._clock.monotonic_s() + PROBE_INTERVAL_S
        if (reason is not None) != self._refused:
            self._refused = reason is not None
            _show(f"the run {storage_note(reason or '')}")


class NniRun:
    """One run under NNI."""

    def __init__(self, config: RunConfig, paths: RunPaths, clock: Clock) -> None:
        self._config = config
        self._paths = paths
        self._clock = clock
        self._asked_to_stop = False
        nni.silence_stdout()
        # What an earlier primary printed is not shown again.
        self._shown_bytes = paths.primary_output.stat().st_size if paths.primary_output.exists() else 0

    def begin(self) -> EndReason:
        """Carry out a new run. Raises EnvironmentNotReadyError, RunFailedError."""
        experiment = Experiment(experiment_config(self._config, self._paths))
        note = {"experiment": experiment.id, "port": self._config.nni.port}
        write_atomically(self._paths.nni, sealed(note) + b"\n")
        return self._accompany(experiment, lambda: experiment.run(self._config.nni.port, wait_completion=False))

    def resume(self, new_clock: bool) -> EndReason:
        """Resume a run with its experiment.

        Raises UsageError if it cannot be resumed; else as `begin`.
        """
        if new_clock:
            raise UsageError("--new-clock: an experiment of NNI has one clock; start a new run")
        if self._config.nni.directory is not None:
            check_hands(Path(self._config.nni.directory))
        # Only a check: the primary that NNI starts claims the run for itself.
        with take_claim(self._paths, self._config, self._clock) as claim:
            end_leftovers(self._config, self._clock, identity_of(self._paths.claims, claim.number))
            prepare_resumption(self._paths, self._config, claim, new_clock, self._clock.utc_ms())
        preflight.check_resumption(self._config)
        try:
            name = json.loads(self._paths.nni.read_bytes())["experiment"]
            experiment = Experiment(None, id=name)
        except (OSError, ValueError, KeyError) as error:
            raise UsageError(f"{self._paths.nni}: does not name an NNI experiment to resume: {error}") from None
        with _output_to(self._paths.nni_output):
            kept = is_kept(name)
        if not kept:
            _show(f"NNI has not kept experiment {name}: the run is resumed in a new one")
            return self.begin()
        return self._accompany(experiment, lambda: experiment.resume(self._config.nni.port, wait_completion=False))

    def _accompany(self, experiment: Experiment, start: Callable[[], object]) -> EndReason:
        os.environ.update(without_proxy(os.environ))
        with self._signals(), PATIENCE.set(self._config.storage.patience):
            try:
                with _manager_environment(), _output_to(self._paths.nni_output), patient_start(self._clock):
                    start()
            except Exception as error:  # NNI passes on every exception from below
                raise EnvironmentNotReadyError([f"NNI's manager did not start: {error}"]) from error
            self._welcome(experiment)
            try:
                self._watch(experiment)
            finally:
                self._stop(experiment)
            return self._reason()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def stop() -> None:
            self._asked_to_stop = True
            PATIENCE.hurry()

        with heeded(stop, signal.SIGINT):
            yield

    def _welcome(self, experiment: Experiment) -> None:
        port = self._config.nni.port
        _show(f"NNI experiment {experiment.id}; to end it: nnictl stop {experiment.id}")
        _show(f"portal: http://{LOOPBACK}:{port}, for you alone; from another machine through a tunnel:")
        _show(f"  ssh -L {port}:{LOOPBACK}:{port} {getpass.getuser()}@{this_host().name()}")

    def _watch(self, experiment: Experiment) -> None:
        """Wait until the run has ended, by itself, by a signal, or with NNI."""
        begun, held, late_s = False, False, self._clock.monotonic_s() + START_TIMEOUT_S
        storage = StorageNote(self._paths.root, self._clock)
        while not self._asked_to_stop:
            self._relay()
            storage.look()
            status = state_of(experiment)
            held = is_held_here(self._paths.claims, otherwise=held)
            begun = begun or held
            if status in (None, "ERROR", "STOPPING", "STOPPED"):
                return
            if begun and (status == "DONE" or not held):
                self._wait_while(lambda: state_of(experiment) not in (None, "DONE", "ERROR"), TRIALS_END_S)
                return
            if not begun and self._clock.monotonic_s() > late_s:
                return
            self._clock.pause(LOOK_INTERVAL_S)

    def _stop(self, experiment: Experiment) -> None:
        """Stop NNI if it still runs, and wait until the primary has ended the replicas."""
        if state_of(experiment) is None:
            # NNI registers it at the start; it would wait in vain for a manager that has ended.
            atexit.unregister(experiment.stop)
        else:
            with _output_to(self._paths.nni_output):
                experiment.stop()
        self._wait_while(
            lambda: is_held_here(self._paths.claims, otherwise=True), self._config.run.stop_grace + START_TIMEOUT_S
        )
        self._relay()

    def _relay(self) -> None:
        """Show the lines that the primary has printed since the last look."""
        with contextlib.suppress(OSError), self._paths.primary_output.open("rb") as output:
            output.seek(self._shown_bytes)
            data = output.read()
            # A line that is still being written comes with the next look.
            whole = data[: data.rfind(b"\n") + 1]
            self._shown_bytes += len(whole)
            for line in whole.decode(errors="replace").splitlines():
                _show(line)

    def _wait_while(self, lasts: Callable[[], bool], timeout_s: float) -> None:
        late_s = self._clock.monotonic_s() + timeout_s
        while lasts() and self._clock.monotonic_s() < late_s:
            self._clock.pause(LOOK_INTERVAL_S / 2)

    def _reason(self) -> EndReason:
        ledger = Ledger()
        ledger.add(HistoryReader(self._paths, roles=("primary",)).read_new().records)
        if ledger.run_ended is None:
            raise RunFailedError(
                f"{self._paths.root}: the primary has ended without recording an end: "
                f"{last_lines(self._paths.primary_output) or 'it was never started'}; "
                f"resume with: aiperf resume {self._paths.root} (NNI's log: {self._paths.nni_output})"
            )
        return ledger.run_ended.body.reason


def _show(line: str) -> None:
    finish()  # these lines take the place of the sign of life
    with contextlib.suppress(OSError):  # a terminal that was closed does not end the run
        print(line, file=sys.stderr, flush=True)  # noqa: T201


@contextlib.contextmanager
def _manager_environment() -> Iterator[None]:
    """The environment of NNI's manager and its children: what is preloaded, safe path, devices.

    Changes the environment of this process meanwhile, since NNI hands it on; not for use in several
    threads.
    """
    # Else a json.py where NNI starts its tuner, in its log directory, would shadow a module.
    changes = dict(SAFE_PATH)
    before_its_code = (f"--require {json.dumps(str(path))}" for path in (PATIENT, PRELOADED))
    changes["NODE_OPTIONS"] = " ".join([os.environ.get("NODE_OPTIONS", ""), *before_its_code]).lstrip()
    passing = [name for number, name in sorted(errno.errorcode.items()) if number not in FINAL]
    changes[POLICY] = json.dumps({"seconds": PATIENCE.seconds, "errors": passing})
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        changes[KEPT_VISIBLE] = os.environ["CUDA_VISIBLE_DEVICES"]
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Redirect the output of this process and of new children to a log."""
    # What Python has buffered belongs to the old output.
    sys.stdout.flush()
    kept = [(number, os.dup(number)) for number in (1, 2)]
    with open_log(log) as stream:
        for number, _ in kept:
            os.dup2(stream.fileno(), number)
    try:
        yield
    finally:
        for number, original in kept:
            os.dup2(original, number)
            os.close(original)
