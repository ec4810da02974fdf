"""The answer of a node to `probe_script.py`, which may hold anything: types and ranges."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from aiperf.config.texts import TextRule

Said = Annotated[str, TextRule()]
_Count = Annotated[int, Field(ge=1, le=2**24)]
_Bytes = Annotated[int, Field(ge=0, le=2**60)]


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class AcceleratorAnswer(_Answer):
    """One accelerator."""

    name: Said
    memory_bytes: _Bytes | None
    driver: Said


class NodeAnswer(_Answer):
    """Description of a node by itself."""

    host: Said
    os: Said
    memory_bytes: _Bytes | None
    accelerators: list[AcceleratorAnswer] = Field(max_length=1024)
    network: dict[Said, int | Said | None] = Field(max_length=1024)
    python: Said
    complaints: list[Said] = Field(default=[], max_length=100)
    """Complaints of the tools that were asked, and accelerators that do not answer."""
    packages: dict[Said, Said | None] = Field(max_length=100)
    slurm: Said | None
    mpi: Said | None
    shared: Said | None
    data: Said | None
    cpu_model: Said
    cpu_count: _Count
    sockets: _Count
    cores_per_socket: _Count
    threads_per_core: _Count
    utc_ms: int = Field(ge=0, le=2**53)
