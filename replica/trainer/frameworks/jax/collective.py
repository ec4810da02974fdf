"""Several ranks through JAX's distributed runtime: one device a process, Gloo on CPUs."""

import math
import os
from collections.abc import Callable, MutableMapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import distributed  # the store of keys has no public name
from jax.errors import JaxRuntimeError
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from aiperf.machine.accelerators import find_accelerators
from replica.trainer.collectives.host import StoreCollective
from replica.trainer.collectives.rank import LOOPBACK, place_of
from replica.trainer.failures import others_may_die

AXIS = "ranks"
ALIKE, DIFFERENT = PartitionSpec(), PartitionSpec(AXIS)
"""Sharding of arrays that are alike on all ranks, and of those of which each rank has a part."""

NO_LIMIT_MS = 1000 * 86_400_000
"""Longest wait of a rank for a message: the service itself notices ranks that are gone."""


SHARDED_TUNING = "xla_gpu_shard_autotuning"


def tune_alone(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let every rank's XLA try all algorithms itself, unless the user has chosen.

    Otherwise each rank tries its share, and waits for the others' (openxla/xla#13108). A rank that
    finds the program in a cache (JAX_COMPILATION_CACHE_DIR), which rank 0 alone fills, tries none:
    the others, whose cache is on another node or was read earlier, would wait for hours.
    """
    flags = environment.get("XLA_FLAGS", "")
    if SHARDED_TUNING not in flags:
        environment["XLA_FLAGS"] = f"{flags} --{SHARDED_TUNING}=false".strip()


class JaxCollective(StoreCollective):
    """The collective of the ranks that one starter has started together.

    Raises TrialFailedError ("ranks") if they are not as many as `ranks`.
    """

    def __init__(self, ranks: int) -> None:
        place = place_of(ranks)
        super().__init__(place.rank, place.size, place.local_rank)
        gpus = len(find_accelerators())
        # gRPC, by which ranks meet, would ask a site's proxy for them. They need no other machine.
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            del os.environ[name]
        if gpus:
            tune_alone()
        with others_may_die(JaxRuntimeError):
            jax.distributed.initialize(
                place.meeting_point,
                place.size,
                place.rank,
                local_device_ids=[place.local_rank % gpus] if gpus else None,
                # Left to itself, it listens on all interfaces.
                coordinator_bind_address=place.meeting_point if place.address == LOOPBACK else None,
            )
        self._store: Any = distributed.global_state.client

    def put(self, key: str, value: bytes) -> None:
        """Set the value of a new key."""
        with others_may_die(JaxRuntimeError):
            self._store.key_value_set_bytes(key, value)

    def get(self, key: str) -> bytes:
        """Wait for a key, without a limit; give its value."""
        with others_may_die(JaxRuntimeError):
            return bytes(self._store.blocking_key_value_get_bytes(key, NO_LIMIT_MS))

    def remove(self, key: str) -> None:
        """Remove a key with its value."""
        with others_may_die(JaxRuntimeError):
            self._store.key_value_delete(key)

    def broadcast_bits(self, bits: NDArray[np.int32]) -> NDArray[np.int32]:
        """Give every rank the numbers that rank 0 passed."""
        with others_may_die(JaxRuntimeError):
            return np.asarray(multihost_utils.broadcast_one_to_all(bits), np.int32)

    @cached_property
    def _mesh(self) -> Mesh:
        # One device a process, the first: on CPUs XLA may be told to have several. The same order
        # on every rank makes part n of an array that of rank n.
        first = {device.process_index: device for device in reversed(jax.devices())}
        return Mesh(np.array([first[rank] for rank in range(self.size)]), (AXIS,))

    def rows(self, own: Any) -> Any:
        """Make the array (ranks, ...) of which this rank has its row."""
        return self.parts(jnp.asarray(own)[None])

    def parts(self, own: Any) -> Any:
        """Make the array of all ranks' parts, by rank; all have the same shape."""
        part = jax.device_put(own, jax.local_devices()[0])
        # Every rank holds its own part alone: the global array is a description, and nothing is
        # copied.
        return self._global((self.size * len(part), *part.shape[1:]), DIFFERENT, part)

    def shared(self, own: Any) -> Any:
        """Make the array that is alike on every rank."""
        value = jax.device_put(own, jax.local_devices()[0])
        return self._global(value.shape, ALIKE, value)

    def _global(self, shape: tuple[int, ...], spec: PartitionSpec, own: Any) -> Any:
        return jax.make_array_from_single_device_arrays(shape, NamedSharding(self._mesh, spec), [own])

    def described(self, shape: tuple[int, ...], dtype: Any, alike: bool) -> Any:
        """Describe an array of all ranks to the compiler; `shape` is that of one rank's part."""
        whole = shape if alike else (self.size * shape[0], *shape[1:])
        return jax.ShapeDtypeStruct(whole, dtype, sharding=NamedSharding(self._mesh, ALIKE if alike else DIFFERENT))

    def together(
        self, function: Callable[..., Any], alike: Any, results_alike: Any, donated: tuple[int, ...] = ()
    ) -> Any:
        """Make a function that all ranks call together, compiled over them (`jax.jit`).

        `alike` is True for each argument that is the same on all ranks, False for one of which each
        has its part; `results_alike` likewise. `sum_tensors` inside makes results alike. `donated`
        arguments lend their memory to the results.
        """
        specs = [tuple(ALIKE if each else DIFFERENT for each in which) for which in (alike, results_alike)]
        mapped = jax.shard_map(function, mesh=self._mesh, in_specs=specs[0], out_specs=specs[1], check_vma=False)
        return jax.jit(mapped, donate_argnums=donated)

    @cached_property
    def _sum(self) -> Callable[[Any], Any]:
        return self.together(lambda own: (jax.lax.psum(own, AXIS),), (False,), (True,))  # type: ignore[no-any-return]

    def sum_tensors(self, tensors: Sequence[Any], name: str) -> list[Any]:
        """Sums over ranks as one all-reduce, inside of a function of `together` or outside."""
        # One vector, so that there is one all-reduce: each has a latency of its own.
        flat = jnp.concatenate([jnp.ravel(tensor) for tensor in tensors])
        if isinstance(flat, jax.core.Tracer):
            total = jax.lax.psum(flat, AXIS)
        else:
            with others_may_die(JaxRuntimeError):
                total = self._sum(self.parts(flat))[0].addressable_data(0)
        ends = np.cumsum([math.prod(tensor.shape) for tensor in tensors])[:-1]
        parts = jnp.split(total, ends)
        return [part.reshape(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    def broadcast_variables(self, variables: Sequence[Any]) -> None:
        """Give every rank the values that rank 0 has."""
        with others_may_die(JaxRuntimeError):
            values = multihost_utils.broadcast_one_to_all([np.asarray(variable.value) for variable in variables])
        for variable, value in zip(variables, values, strict=True):
            variable.assign(np.asarray(value))

    def average_variables(self, variables: Sequence[Any]) -> None:
        """Give every rank the mean over ranks."""
        if not variables:
            return
        sums = self.sum_tensors([variable.value for variable in variables], "averages")
        for variable, total in zip(variables, sums, strict=True):
            variable.assign(total / self.size)

    def close(self) -> None:
        """Leave the other ranks."""
        # Rank 0 writes weights and checkpoints to the end, and may wait for storage. The others
        # would wait for it in the service's own barrier, for five minutes at most.
        self.broadcast(b"")
        jax.distributed.shutdown()
