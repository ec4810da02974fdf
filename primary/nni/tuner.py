"""NNI's tuner for a run: it starts the primary, hands out its jobs, and ends it.

In NNI's terms it is an advisor: a tuner that talks to NNI's manager itself. Only an advisor may
answer a request later, here when a replica is free.
"""

import contextlib
import json
import logging
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import requests
from nni.runtime.msg_dispatcher_base import MsgDispatcherBase
from nni.runtime.tuner_command_channel import CommandType

from aiperf.processes import python_module
from aiperf.run_directory.paths import RunPaths
from aiperf.storage.logs import open_log
from aiperf.wire.lines import encode
from aiperf.wire.messages import Message
from primary.background.outputs import ignore_hangups
from primary.nni.library import load, read_plainly
from primary.nni.messages import Clock, Gone, Offer, Wanted, decode_to_tuner
from primary.nni.portal import CHANNEL, GUARDED, end_in, own_channel, port_of

log = logging.getLogger(__name__)

KEPT_VISIBLE = "AIPERF_CUDA_VISIBLE_DEVICES"
"""CUDA_VISIBLE_DEVICES as it was before NNI emptied it for its tuner."""

NOT_FOR_THE_PRIMARY = ("SDK_PROCESS", "CUDA_VISIBLE_DEVICES", KEPT_VISIBLE, GUARDED)

CANCELLED = ("USER_CANCELED", "EARLY_STOPPED", "SYS_CANCELED")
"""NNI's states of a trial that was ended from outside.

If a trial process fails, its training continues.
"""

END_TIMEOUT_S = 25.0
"""NNI kills a tuner that takes more than 30 s to end; the primary then ends without it."""

OPEN_PORTAL = (
    "this manager of NNI was started without AIPerf's portal.cjs: its portal would let everybody run programs as you; "
    "resume the run with: aiperf resume {run}"
)


def primary_environment() -> dict[str, str]:
    """The environment of this process without NNI's own variables."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("NNI_") and name not in NOT_FOR_THE_PRIMARY
    }
    visible = os.environ.get(KEPT_VISIBLE)
    return own if visible is None else {**own, "CUDA_VISIBLE_DEVICES": visible}


class AiperfTuner(MsgDispatcherBase):  # type: ignore[misc]
    """Hands out jobs for NNI's trials.

    Results reach the search through the history list, not through NNI.
    """

    def __init__(self, run: str) -> None:
        if GUARDED not in os.environ:
            raise RuntimeError(OPEN_PORTAL.format(run=run))
        read_plainly()
        ignore_hangups()  # NNI's manager starts its children with every signal as it is by default
        super().__init__(own_channel())
        self._paths = RunPaths(Path(run))
        self._port = port_of(CHANNEL)
        self._writing = threading.Lock()
        with open_log(self._paths.primary_output) as output:
            self._primary = subprocess.Popen(
                python_module("primary.nni", "--run", run),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=primary_environment(),
                start_new_session=True,
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def run(self) -> None:
        """Serve NNI until it ends the experiment; then end the primary, in order."""
        try:
            self._serve()
        finally:
            self.stopping = True
            assert self._primary.stdin is not None
            with contextlib.suppress(OSError):
                self._primary.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._primary.wait(END_TIMEOUT_S)

    def _serve(self) -> None:
        """Serve NNI as the inherited `run` does, but read its commands as plain JSON."""
        workers = (self.default_worker, self.assessor_worker)
        for worker in workers:
            worker.start()
        while not self.worker_exceptions:
            command, text = self._channel._receive()
            if command in (None, CommandType.Terminate):
                break
            self.enqueue_command(command, load(text) if text else text)
        self.stopping = True
        for worker in workers:
            worker.join()
        self._channel.disconnect()

    def handle_initialize(self, data: dict[str, Any]) -> None:
        """Confirm that the experiment may begin."""
        self.send(CommandType.Initialized, "")

    def handle_request_trial_jobs(self, data: int) -> None:
        """Pass on that NNI has room for more trials."""
        self._send(Wanted(jobs=data))

    def handle_trial_end(self, data: dict[str, Any]) -> None:
        """End the training of a trial that was ended in NNI."""
        if data["event"] in CANCELLED:
            self._send(Gone(trial=json.loads(data["hyper_params"])["parameter_id"]))

    def handle_report_metric_data(self, data: dict[str, Any]) -> None:
        """No-op: results are in the history list already."""

    def handle_update_search_space(self, data: dict[str, Any]) -> None:
        """Refuse: the space of a run is fixed when it begins."""
        log.warning("the search space of a run cannot be changed; the change has no effect")

    def handle_import_data(self, data: list[dict[str, Any]]) -> None:
        """No-op: the history list has all earlier work."""

    def handle_add_customized_trial(self, data: list[dict[str, Any]]) -> None:
        """No-op: trials that NNI restarts after a stop find their end in the history list."""

    def _send(self, message: Message) -> None:
        assert self._primary.stdin is not None
        with self._writing, contextlib.suppress(OSError):  # the end of its output shows that it has ended
            self._primary.stdin.write(encode(message))
            self._primary.stdin.flush()

    def _listen(self) -> None:
        """Follow the primary's messages until it ends."""
        assert self._primary.stdout is not None
        closed = False
        for line in self._primary.stdout:
            message = decode_to_tuner(line)
            if isinstance(message, Offer):
                self._offer(message)
            elif isinstance(message, Clock):
                self._end_in(message.left_s)
            else:
                closed = True
                self._end_in(0.0)
        if not closed and not self.stopping:
            self.report_error(f"the primary of the run has died; see {self._paths.primary_output}")

    def _offer(self, offer: Offer) -> None:
        content = {
            "parameter_id": offer.trial,
            "parameter_source": "algorithm",
            "parameters": offer.parameters,
            "parameter_index": 0,
        }
        try:
            self.send(CommandType.NewTrialJob, json.dumps(content))
        except Exception as error:  # whatever NNI's channel raises when it has given its manager up
            if not self.stopping:
                log.error("NNI's manager does not take trial %d: %s: %s", offer.trial, type(error).__name__, error)

    def _end_in(self, left_s: float) -> None:
        try:
            end_in(self._port, left_s)
        except requests.RequestException as error:
            if not self.stopping:
                log.warning("the duration of the experiment cannot be set: %s", error)
