"""The exceptions of the project: what went wrong, who raises it, and what a user can do.

Every error that a user can cause or meet derives from `AiperfError`. Its message names the
offending value, what is allowed and what to do; its `exit_code` is what the command ends with: 1
the run failed, 2 wrong usage or input, 3 the environment does not allow it. `aiperf screen`
ends with 4 if it names a bad node, which is no error.
"""

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_ENVIRONMENT = 3
EXIT_REJECTED = 4
"""No error: `aiperf screen` has found a bad node, or `aiperf accept` a value beyond its limit."""


class AiperfError(Exception):
    """Base of all errors with a message meant for a user."""

    exit_code = EXIT_FAILED

    @property
    def lines(self) -> tuple[str, ...]:
        """The message, line by line: the only line feeds that a terminal may get."""
        return (str(self),)


class UsageError(AiperfError):
    """The command line or an input file is wrong. Raised before anything starts; do not retry."""

    exit_code = EXIT_USAGE

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for each problem."""
        return self.problems


class ConfigError(UsageError):
    """The configuration is wrong.

    Raised by `aiperf.config`; carries every problem found, not only the first.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__(*problems)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    @property
    def lines(self) -> tuple[str, ...]:
        """A heading, and a line for each problem."""
        listed = (f"  - {problem}" for problem in self.problems)
        return (f"the configuration has {len(self.problems)} problem(s):", *listed)


class EnvironmentNotReadyError(AiperfError):
    """The machine cannot do what was asked (missing package, full disk). Repair it and retry."""

    exit_code = EXIT_ENVIRONMENT

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for each problem."""
        return self.problems


class StorageError(EnvironmentNotReadyError):
    """The run directory is gone, or has refused to be written for `storage.patience`.

    Raised by `aiperf.storage` and by writers of the history list; ends the process, since nothing
    can be recorded. Resume the run when the directory can be written again.
    """


class ArchitectureError(UsageError):
    """A layer graph is not valid: raised when an `Architecture` is made or read. Never retry."""


class UncountedLayerError(UsageError):
    """The operation count has no rule for a layer.

    Raised by the counters; names every such layer.
    """

    def __init__(self, layers: list[str]) -> None:
        self.layers = tuple(layers)
        super().__init__(
            f"no operation rule for {len(layers)} layer(s): {', '.join(layers)}. "
            "Nothing is counted as zero in silence: write a rule in aiperf/network/operations.py "
            '(see docs/operations.md, "Adding a layer").'
        )


class RecordDamagedError(AiperfError):
    """A line of the history list is not what was written.

    Raised by `aiperf.records.record`; readers report it.
    """


class DigestDamagedError(AiperfError):
    """A digest is not as its primary wrote it. Raised by `aiperf.records.digest`.

    The raw records say the same, so that nothing is lost.
    """


class RecordOutOfRangeError(RecordDamagedError):
    """A line of the history list has a number that no run can reach. Raised with the others."""


class RunDirectoryError(UsageError):
    """A path is not a run directory, or holds another run.

    Raised by `aiperf.run_directory` and the readers.
    """


class RunFailedError(AiperfError):
    """A run ended without a result.

    Raised by a series of runs (repeat the command) and under NNI (resume the run).
    """


class RunHeldError(AiperfError):
    """Another primary drives the run.

    Raised by `aiperf.run_directory.claim`; retry when that one has ended.
    """

    exit_code = EXIT_ENVIRONMENT


class DatasetError(UsageError):
    """A directory of images is not what it should be.

    Raised by readers of data sets; repair the data and retry.
    """


class MessageError(AiperfError):
    """Another process sent a line that is not a message. Raised by `aiperf.wire.messages`."""


class LaunchError(AiperfError):
    """A replica could not be started. Raised by launchers; retry only if `restart` is true."""

    def __init__(self, reason: str, restart: bool = False) -> None:
        self.restart = restart
        super().__init__(reason)


class TrialFailedError(AiperfError):
    """A trial cannot be trained.

    Raised inside the trainer; the trial is recorded as failed, the run continues.
    """

    def __init__(self, kind: str, reason: str) -> None:
        self.kind = kind
        self.reason = reason
        super().__init__(f"{kind}: {reason}")
