"""Several ranks through JAX's distributed runtime: one device a process, Gloo on CPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import distributed  # the store of keys has no public name
from jax.errors import JaxRuntimeError
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from aiperf.machine.accelerators import find_accelerators
from replica.trainer.collectives.host import StoreCollective
from replica.trainer.collectives.rank import place_of
from replica.trainer.failures import others_may_die

AXIS = "ranks"

NO_LIMIT_MS = 1000 * 86_400_000
"""How long a rank waits for a message: the service itself notices ranks that are gone."""


class JaxCollective(StoreCollective):
    """The ranks that one starter has started together.

    Raises TrialFailedError ("ranks") if they are not as many as `ranks`.
    """

    def __init__(self, ranks: int) -> None:
        place = place_of(ranks)
        super().__init__(place.rank, place.size, place.local_rank)
        gpus = len(find_accelerators())
        with others_may_die(JaxRuntimeError):
            jax.distributed.initialize(
                place.meeting_point, place.size, place.rank,
                local_device_ids=[place.local_rank % gpus] if gpus else None,
            )  # fmt: skip
        self._store: Any = distributed.global_state.client

    def put(self, key: str, value: bytes) -> None:
        """Set the value of a new key."""
        with others_may_die(JaxRuntimeError):
            self._store.key_value_set_bytes(key, value)

    def get(self, key: str) -> bytes:
        """Wait for a key without a limit; its value."""
        with others_may_die(JaxRuntimeError):
            return bytes(self._store.blocking_key_value_get_bytes(key, NO_LIMIT_MS))

    @cached_property
    def _mesh(self) -> Mesh:
        first = {device.process_index: device for device in reversed(jax.devices())}
        return Mesh(np.array([first[rank] for rank in range(self.size)]), (AXIS,))

    def _rows(self, own: Any) -> Any:
        """The array (ranks, ...) of which this rank has its row."""
        row = jax.device_put(jnp.asarray(own)[None], jax.local_devices()[0])
        return self._global((self.size, *row.shape[1:]), PartitionSpec(AXIS), row)

    def _shared(self, own: Any) -> Any:
        """The array that every rank has, and has alike."""
        value = jax.device_put(own, jax.local_devices()[0])
        return self._global(value.shape, PartitionSpec(), value)

    def _global(self, shape: tuple[int, ...], spec: PartitionSpec, own: Any) -> Any:
        return jax.make_array_from_single_device_arrays(shape, NamedSharding(self._mesh, spec), [own])

    def together(self, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Compile a function over all ranks, which call it together.

        Its first argument is alike on all ranks, its second differs. Its results must be alike:
        within it, `sum_tensors` makes them so.
        """

        def body(shared: Any, rows: Any) -> Any:
            return function(shared, jax.tree.map(lambda row: row[0], rows))

        compiled = jax.jit(
            jax.shard_map(
                body, mesh=self._mesh, in_specs=(PartitionSpec(), PartitionSpec(AXIS)), out_specs=PartitionSpec(),
                check_vma=False,
            )
        )  # fmt: skip

        def call(shared: Any, own: Any) -> Any:
            with others_may_die(JaxRuntimeError):
                found = compiled(jax.tree.map(self._shared, shared), jax.tree.map(self._rows, own))
            return jax.tree.map(lambda value: value.addressable_data(0), found)

        return call

    @cached_property
    def _sum(self) -> Callable[[Any, Any], Any]:
        return self.together(lambda shared, own: jax.lax.psum(own, AXIS))

    def sum_tensors(self, tensors: Sequence[Any], name: str) -> list[Any]:
        """Sums over ranks as one all-reduce, inside of a function of `together` or outside."""
        flat = jnp.concatenate([jnp.ravel(tensor) for tensor in tensors])
        total = jax.lax.psum(flat, AXIS) if isinstance(flat, jax.core.Tracer) else self._sum((), flat)
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
        jax.distributed.shutdown()
