"""The run directory: the one module that knows the names of files in it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from aiperf.errors import RunDirectoryError
from aiperf.files import make_folder
from aiperf.storage.patience import with_patience
from aiperf.untrusted.folders import family_of
from aiperf.untrusted.recognition import described_file

PRIMARY_NODE = "primary"
"""Key of the primary's node in system.json, next to the numbers of the replicas."""


@dataclass(frozen=True)
class RunPaths:
    """The files of one run, below the shared directory `root`."""

    root: Path

    @property
    def run(self) -> Path:
        """Configuration, versions and seed, written once."""
        return self.root / "run.json"

    @property
    def system(self) -> Path:
        """Description of every node: CPU, memory, accelerators, software."""
        return self.root / "system.json"

    @property
    def snapshot(self) -> Path:
        """State of a large run in progress, for those who watch it."""
        return self.root / "snapshot.json"

    @property
    def kept_status(self) -> Path:
        """Status of a run that is over, for those who ask again; may be deleted."""
        return self.root / "status.json"

    @property
    def history(self) -> Path:
        """Directory of the history list: one file per writer."""
        return self.root / "history"

    @property
    def models(self) -> Path:
        """Directory of architectures, by canonical hash."""
        return self.root / "models"

    @property
    def space(self) -> Path:
        """The space of hyperparameters, if the run has one of its own."""
        return self.root / "hyperparameters.json"

    @property
    def candidates(self) -> Path:
        """Directory of proposals that wait for a later round."""
        return self.root / "candidates"

    @property
    def logs(self) -> Path:
        """Directory of logs: one file per process and per trial."""
        return self.root / "logs"

    @property
    def primary_log(self) -> Path:
        """The primary's log."""
        return self.logs / "primary.log"

    @property
    def primary_output(self) -> Path:
        """Output of a primary without a terminal: events and progress."""
        return self.logs / "primary.out"

    @property
    def run_output(self) -> Path:
        """Output of a run in the background, and of one whose terminal was closed."""
        return self.logs / "run.out"

    @property
    def nni(self) -> Path:
        """The NNI experiment that drives the run."""
        return self.root / "nni.json"

    @property
    def nni_files(self) -> Path:
        """NNI's own files, unless the run keeps them elsewhere."""
        return self.root / "nni"

    @property
    def claims(self) -> Path:
        """Directory of the claims of all primaries; the highest number holds the run."""
        return self.root / "claims"

    @property
    def reserve(self) -> Path:
        """Space that is kept for the last records."""
        return self.root / ".reserve"

    @property
    def telemetry(self) -> Path:
        """Directory of samples of what the nodes do."""
        return self.root / "telemetry"

    @property
    def meters(self) -> Path:
        """Directory of readings of meters outside of the nodes, which the owner puts there."""
        return self.root / "meters"

    @property
    def report(self) -> Path:
        """Directory of derived files; may be deleted and rebuilt."""
        return self.root / "report"

    @property
    def report_json(self) -> Path:
        """The report for programs."""
        return self.report / "report.json"

    @property
    def nni_output(self) -> Path:
        """Output of NNI's manager."""
        return self.logs / "nni.out"

    def history_files(self, role: str = "*") -> list[Path]:
        """The files of the history list, or of a role like "replica-0001". Raises OSError."""
        return _files_in(self.history, "*.jsonl" if role == "*" else f"{role}-*.jsonl")

    def unlisted_files(self, writers: Iterable[str], listed: Iterable[Path]) -> list[Path]:
        """The files of replicas' writers that are there, although this node does not list them yet.

        Clients of network file systems keep listings. Names of anything else are passed over.
        Raises OSError.
        """
        # Names alone: of thousands of replicas all are listed nearly always.
        missing = set(writers).difference(file.stem for file in listed)
        files = (self.history_file(writer) for writer in missing if _REPLICAS_WRITER.fullmatch(writer))
        return sorted(file for file in files if with_patience(file.exists, file))

    def telemetry_files(self) -> list[Path]:
        """Samples of telemetry, in the order of their names. Raises OSError."""
        return _files_in(self.telemetry, "*.jsonl")

    def checkpoints(self) -> list[Path]:
        """States of trials that are not over, or that nothing has removed."""
        return sorted(self.models.glob("*/checkpoint-*.npz"))

    def telemetry_file(self, sampler: str) -> Path:
        """The samples that one process took of its node."""
        return self.telemetry / f"{sampler}.jsonl"

    def history_file(self, writer: str) -> Path:
        """The file of one writer of the history list."""
        return self.history / f"{writer}.jsonl"

    def architecture(self, architecture_hash: str) -> Path:
        """The layer graph of one architecture."""
        return self.models / architecture_hash / "architecture.json"

    def weights(self, architecture_hash: str, trial: int) -> Path:
        """Best weights of a trial, kept while it is worth inheriting from."""
        return self.models / architecture_hash / f"weights-{trial:06d}.npz"

    def checkpoint(self, architecture_hash: str, trial: int) -> Path:
        """State of a trial after its last kept epoch, while the trial is not over."""
        return self.models / architecture_hash / f"checkpoint-{trial:06d}.npz"

    def checkpoints_of(self, architecture_hash: str, trial: int) -> tuple[Path, Path]:
        """The checkpoint of a trial, and the one before it."""
        return (latest := self.checkpoint(architecture_hash, trial)), earlier_checkpoint(latest)

    def candidate(self, replica: int, round_number: int) -> Path:
        """Architecture that a replica has proposed ahead for a round."""
        return self.candidates / f"replica-{replica:04d}-round-{round_number:04d}.json"

    def replica_log(self, replica: int) -> Path:
        """Standard error of one replica's agent."""
        return self.logs / f"replica-{replica:04d}.log"

    def trial_log(self, trial: int) -> Path:
        """Output of the trainer ranks of one trial."""
        return self.logs / f"trial-{trial:06d}.log"

    def preparation_log(self, replica: int, number: int) -> Path:
        """Output of trainer ranks that wait for their trial; becomes the trial's log."""
        return self.logs / f"replica-{replica:04d}-preparation-{number:06d}.log"

    def evidence(self, trial: int) -> Path:
        """Losses and gradient norms of a trial's steps (`aiperf.run_directory.step_evidence`)."""
        return self.root / "evidence" / f"trial-{trial:06d}.rows"

    def create(self) -> None:
        """Make the directories of a new run. Raises OSError."""
        for directory in (self.history, self.models, self.candidates, self.logs):
            make_folder(directory)


_REPLICAS_WRITER = re.compile(r"replica-\d{4,9}-\d{1,9}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A kind of file in a run directory.

    Paths are relative to it; `submitted` files go into an archive.
    """

    name: str
    """Regular expression of the name."""
    glob: str
    submitted: bool = False


def measured_file(paths: RunPaths, name: str) -> Path:
    """The micro suite's results of one node (`aiperf.run_directory.micro_results`)."""
    return paths.root / "micro" / name


def digests_of(paths: RunPaths) -> Path:
    """Directory of digests (`aiperf.records.digest`): a folder for each primary."""
    return paths.root / "digest"


def digest_segment(paths: RunPaths, primary: str, number: int) -> Path:
    """A segment, from 1, of the digest that a primary writes."""
    return digests_of(paths) / primary / f"{number:06d}.jsonl"


def earlier_checkpoint(checkpoint: Path) -> Path:
    """The checkpoint before this one, of the same trial: the latest may be ahead of the records."""
    return checkpoint.with_suffix(".before.npz")


ENTRIES = (
    Entry(r"run\.json", "run.json", submitted=True),
    Entry(r"system\.json", "system.json", submitted=True),
    Entry(r"hyperparameters\.json", "hyperparameters.json", submitted=True),
    Entry(r"history/(primary|replica-\d{4,})-\d+\.jsonl", "history/*.jsonl", submitted=True),
    Entry(r"digest/primary-\d+/\d{6,}\.jsonl", "digest/*/*.jsonl", submitted=True),
    Entry(r"models/[0-9a-f]{16}/architecture\.json", "models/*/architecture.json", submitted=True),
    Entry(r"telemetry/[^/]+\.jsonl", "telemetry/*.jsonl", submitted=True),
    Entry(r"evidence/trial-\d{6,}\.rows", "evidence/*.rows", submitted=True),
    Entry(r"micro/[\w.-]+\.json", "micro/*.json", submitted=True),
    Entry(r"meters/(meters\.toml|[A-Za-z0-9_][\w.-]*\.csv)", "meters/*", submitted=True),
    Entry(r"report/.+", "report/**/*", submitted=True),
    Entry(r"models/[0-9a-f]{16}/(weights-\d{6,}|checkpoint-\d{6,}(\.before)?)\.npz", "models/*/*.npz"),
    Entry(r"candidates/replica-\d{4,}-round-\d{4,}\.json", "candidates/*.json"),
    Entry(r"logs/(primary|ray|replica-\d{4,}|trial-\d{6,}|replica-\d{4,}-preparation-\d{6,})\.log", "logs/*.log"),
    Entry(r"logs/(primary|nni|run)\.out", "logs/*.out"),
    Entry(r"claims/\d{6,}\.json", "claims/*.json"),
    Entry(r"primary\.claim", "primary.claim"),
    Entry(r"snapshot\.json", "snapshot.json"),
    Entry(r"status\.json", "status.json"),
    Entry(r"\.reserve", ".reserve"),
    Entry(r"nni\.json", "nni.json"),
    Entry(r"nni/.+", "nni/**/*"),
)
"""Files of a run directory."""


def belongs(name: str) -> bool:
    """True if a run writes files of this name, which is relative to its directory."""
    return any(re.fullmatch(entry.name, name) for entry in ENTRIES)


def unusable_path(path: Path) -> str | None:
    """Explain why no run can be in a directory of this path; None if one can.

    Paths are parts of messages between processes, which are UTF-8; a file system takes any bytes.
    """
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        return f"{str(path.absolute())!r} is not UTF-8, which the path of a run directory must be: rename it"
    return None


def _files_in(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder by name; none if there is no folder.

    `Path.glob` takes a folder that refuses to be read, as when a ticket has expired, for an empty
    one.
    """

    def listed() -> list[Path]:
        try:
            return sorted(path for path in folder.iterdir() if path.match(pattern) and family_of(path.name) is None)
        except (FileNotFoundError, NotADirectoryError):
            return []

    return with_patience(listed, folder)


SEE = "see what there is: aiperf dashboard"
"""The advice if a path is not a run."""


def open_run(path: Path) -> RunPaths:
    """The paths of an existing run. Raises RunDirectoryError if it holds no run, and OSError."""
    paths = RunPaths(path)
    if problem := unusable_path(path):
        raise RunDirectoryError(problem)
    if not with_patience(path.is_dir, path):
        found = described_file(path) if path.is_file() else ""
        but = f" but {found}" if found else ""
        if "archive" in found or found.startswith("packed by"):
            raise RunDirectoryError(f"{path} is not a directory{but}; unpack it and name its folder")
        raise RunDirectoryError(f"{path} is not a directory{but}; name the --output directory of a run; {SEE}")
    if not with_patience(paths.run.is_file, paths.run):
        raise RunDirectoryError(f"{path} is not a run directory: it has no {paths.run.name}; {SEE}")
    return paths
