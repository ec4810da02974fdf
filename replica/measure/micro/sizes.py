"""The sizes of the micro suite that follow from the memory and the caches of this machine."""

from dataclasses import dataclass

from aiperf.host import Host, this_host
from aiperf.machine.accelerators import find_accelerators
from aiperf.machine.energy_counters import AcceleratorCounter, Counter, cpu_packages
from replica.measure.micro.stacks.contract import TooLargeError
from workloads.micro import Work, group, triad

LEAST_CACHE, CACHE_OF_CPU = 32 << 20, 4 << 20
"""Bytes of the last-level caches if the kernel shows no third level: the least, and of each CPU.

Server processors have less. Too large a guess costs memory; too small a one would measure the
cache.
"""

MOST_COPIES = 512

NUMPY_BYTES = 4
"""Bytes of an element in the host's memory."""

VECTORS, VECTOR_CACHES = 3, 4
"""Number of the triad's vectors, b, c and a, and the size of each in last-level caches (McCalpin
1995, STREAM)."""

HELD_VECTORS = 7
"""Number of vectors of a block that are held on its way to the device (`Streamed.peak`)."""

BLOCKS = 4
"""Number of parts of the vectors if they do not fit as a whole: TensorFlow is slower on smaller
ones."""

ENOUGH_CACHES = 10
"""Size of a stream, in caches, from which on a cache can keep no more than a tenth of it."""


def usable_memory(host: Host) -> int:
    """The bytes that a measurement may take: a quarter of those that are available."""
    return host.memory().available // 4


def last_level_cache(host: Host) -> int:
    """The bytes of all last-level caches of this process's CPUs, or a guess."""
    known = host.last_level_cache()
    # Of many virtual machines and ARM servers the kernel shows two levels, and not the third.
    return known if host.cache_level() >= 3 else max(known, LEAST_CACHE, CACHE_OF_CPU * host.usable_cpus())


def device_of(stack: str) -> tuple[str, int | None]:
    """The model of a stack's device, from the stack's name of it, and the number of its CPUs."""
    if "cpu" in stack.lower():
        return this_host().cpu_model(), this_host().usable_cpus()
    found = find_accelerators()
    return (found[0].name if found else stack), None


def energy_counter(stack: str) -> Counter:
    """The counter of energy of a stack's device, from the stack's name of it."""
    found = find_accelerators() if "cpu" not in stack.lower() else ()
    return AcceleratorCounter(found[0].index) if found else cpu_packages()


@dataclass(frozen=True, slots=True)
class Streamed:
    """The memory that the triad streams through: blocks that are used in turn."""

    elements: int
    """Number of elements of one vector of a block."""
    blocks: int
    item_size: int
    cache: int
    """Bytes of the last-level caches."""

    @property
    def work(self) -> Work:
        """The triad of one block."""
        return Work(triad(self.elements), "forward", 1)

    @property
    def bytes(self) -> int:
        """The bytes of all vectors of all blocks."""
        return VECTORS * self.elements * self.blocks * self.item_size

    @property
    def peak(self) -> int:
        """The largest number of bytes: in addition to the vectors, one block is on its way there.

        The frameworks hold up to 6.6 further vectors of it meanwhile, as measured.
        """
        return self.bytes + HELD_VECTORS * self.elements * self.item_size

    @property
    def remark(self) -> str:
        """A remark on the bandwidth if vectors are not far larger than the caches; else empty."""
        if self.bytes >= ENOUGH_CACHES * self.cache:
            return ""
        share = min(1.0, self.cache / self.bytes)
        return (
            f"the triad streams through {self.bytes / 2**20:,.0f} MiB, all that a quarter of the available memory "
            f"holds, and the last-level caches have {self.cache / 2**20:,.0f} MiB: up to {share:.0%} of its bytes may "
            "come from them, so the bandwidth is an upper bound of the memory's"
        )


def streamed(item_size: int, cache: int, memory: int) -> Streamed:
    """The triad's vectors for elements of that size, in `memory` bytes at most.

    They are whole if they fit, else in blocks, which need less: only one of them is held twice. The
    blocks are as large together as the vectors would be, or as memory allows.
    """
    wanted = -(-VECTOR_CACHES * cache // item_size)
    whole = Streamed(wanted, 1, item_size, cache)
    if whole.peak <= memory:
        return whole
    # The peak is linear in the elements: that of one element gives the most that fit.
    most = memory // (Streamed(1, BLOCKS, item_size, cache).peak)
    return Streamed(max(1, min(-(-wanted // BLOCKS), most)), BLOCKS, item_size, cache)


def copies_of(work: Work, item_size: int) -> int:
    """The number of copies of the operands to rotate over.

    Pooling and fully connected layers get twice the last-level cache, up to `MOST_COPIES`, so that
    no operand is in the cache because it was just used; one copy of a large layer exceeds it by
    itself. Raises TooLargeError if one copy, here and on the device, needs more than a quarter of
    the available memory.
    """
    limit, cache = usable_memory(this_host()), last_level_cache(this_host())
    drawn, own = work.elements * NUMPY_BYTES, work.bytes(item_size)
    if drawn + own > limit:
        raise TooLargeError(
            f"{work.case.operator} {work.case.text}, batch {work.batch}, needs {(drawn + own) / 2**30:.1f} GiB, more "
            f"than a quarter of the available memory ({limit / 2**30:.1f} GiB)"
        )
    if group(work.case) not in ("pool", "fc") or own > 2 * cache:
        return 1
    # One copy more than fills twice the cache: the next one to be used is not in it.
    wanted = -(-2 * cache // own) + 1
    return int(min(max(wanted, 2), MOST_COPIES, max((limit - drawn) // own, 1)))
