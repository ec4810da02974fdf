"""Results of the micro suite (`aiperf micro`): alone in a file, and of the nodes of a run.

A node's file is made before its suite runs and replaced afterwards: one replica of a node measures
it, and no resumed run measures it again. The primary's record of the node has the file's SHA-256.
"""

import contextlib
import json
import re
import secrets
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from aiperf.errors import UsageError
from aiperf.files import write_atomically
from aiperf.network.roofline import Peaks
from aiperf.run_directory.checksums import sealed, sealed_object
from aiperf.run_directory.paths import RunPaths, measured_file
from aiperf.storage.durable import publish
from aiperf.untrusted.reading import parse_outside, read_outside

SUITE_PRECISIONS: dict[str, str] = {"float32": "float32", "mixed_bfloat16": "bfloat16", "mixed_float16": "float16"}
"""The suite's precision for each arithmetic of the layers of a training."""

MOST_ROWS = 10_000
"""Results of one file; the whole suite has about 80 on one stack."""

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=200)]


class MicroRow(BaseModel):
    """One result of the suite, as `aiperf micro --format json` prints it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    operator: Text
    kind: Text
    """`ceiling` for `gemm` and `triad`."""
    shape: Text = ""
    direction: Text = Field(default="forward", alias="pass")
    stack: Text
    precision: Literal["float32", "bfloat16", "float16"]
    device: Text | None = None
    """Model of the processor or accelerator; None in files of earlier versions."""
    cpus: int | None = Field(default=None, ge=1, le=1 << 16)
    """CPUs that the suite could use; None if it computed on an accelerator."""
    batch: int = Field(default=1, ge=1)
    operations: int = Field(default=0, ge=0)
    ops_per_s: Rate
    images_per_s: Rate | None = None
    bytes_per_s: Rate
    upper_bound: bool = False
    """True if memory may be slower: caches may have held a part of the bytes."""
    share_of_ceiling: Share | None = None
    bound: Text | None = None
    mark: Text = ""
    spread: Share = 0.0
    noisy: bool = False
    error_against_reference: Share | None = None
    joules: Share | None = None
    """Joules of a call; None without a counter of energy."""
    operations_per_joule: Share | None = None

    @property
    def intensity(self) -> float:
        """Operations a byte, every operand once."""
        return self.ops_per_s / self.bytes_per_s


class NodeResult(BaseModel):
    """The results of one node of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    host: Text
    replica: int = Field(ge=0)
    """The replica that measured it."""
    suite: Literal["quick", "full"]
    stack: Text
    precision: Text
    problems: tuple[Annotated[str, Field(max_length=1000)], ...] = Field(default=(), max_length=MOST_ROWS)
    """Complaints of the suite, or reasons why it has no results."""
    results: tuple[MicroRow, ...] = Field(default=(), max_length=MOST_ROWS)


_ROWS: TypeAdapter[list[MicroRow]] = TypeAdapter(list[MicroRow])


def file_name(host: str) -> str:
    """The name of a node's file below the run directory's `micro`."""
    return re.sub(r"[^\w.-]", "_", host, flags=re.ASCII)[:200] + ".json"


def claim_node(paths: RunPaths, result: NodeResult) -> bool:
    """Make the file of a node, with `result` in it; False if there is one. Raises OSError.

    The file appears whole, under its name at once: of several replicas one succeeds.
    """
    target = measured_file(paths, file_name(result.host))
    target.parent.mkdir(parents=True, exist_ok=True)
    own = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    # Written whole under another name first, so that no replica reads a half of it.
    write_atomically(own, encoded(result))
    try:
        publish(own, target)
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(OSError):
            own.unlink()
    return True


def encoded(result: NodeResult) -> bytes:
    """The content of a node's file."""
    return sealed(result.model_dump(by_alias=True, mode="json"), indent=2) + b"\n"


def decoded_node(data: bytes, name: str) -> NodeResult:
    """The content of a node's file, which is called `name`. Raises RunDirectoryError."""
    return parse_outside(data, name, _node, what="a node's result of the micro suite")


def _node(data: bytes) -> NodeResult:
    return NodeResult.model_validate(sealed_object(data))


def read_rows(path: Path) -> tuple[MicroRow, ...]:
    """The results in the JSON of `aiperf micro`. Raises UsageError if it is another file."""
    return read_outside(path, rows_of, error=UsageError, what="a result of 'aiperf micro --format json'")


def rows_of(data: bytes | str) -> tuple[MicroRow, ...]:
    """The results in a document of `aiperf micro --format json`. Raises ValueError."""
    document: Any = json.loads(data)
    return tuple(_ROWS.validate_python(document))


def read_peaks(path: Path) -> Peaks:
    """The ceilings in the JSON of `aiperf micro`: of several stacks, the best.

    Raises UsageError if the file is not such a result, or has no ceilings of one precision.
    """
    rows = read_rows(path)
    found = peaks_of(rows)
    if len(found) != 1:
        raise UsageError(f"{path}: needs the ceilings gemm and triad of one precision")
    return found[0]


def peaks_of(rows: tuple[MicroRow, ...]) -> list[Peaks]:
    """The ceilings of each precision that has both: of several stacks, the best of each."""
    ceilings = [row for row in rows if row.kind == "ceiling"]
    found = []
    for precision in sorted({row.precision for row in ceilings}):
        products = [row.ops_per_s for row in ceilings if (row.operator, row.precision) == ("gemm", precision)]
        streams = [row for row in ceilings if (row.operator, row.precision) == ("triad", precision)]
        if products and streams:
            fastest = max(streams, key=lambda row: row.bytes_per_s)
            found.append(Peaks(max(products), fastest.bytes_per_s, precision, fastest.upper_bound))
    return found
