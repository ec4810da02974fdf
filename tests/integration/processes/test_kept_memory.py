"""The memory allocator of a rank that trains on CPUs with PyTorch."""

import subprocess
import sys

from tests.support.trainings.installed import need_frameworks

PROGRAM = """
import resource
from replica.trainer.frameworks.torch.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytes(bytearray(64 << 20))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
mapped_anew = faults()
keep_freed_memory()
faults()
print(mapped_anew, faults())
"""


def test_freed_memory_is_kept_for_the_next_step() -> None:
    need_frameworks("torch")
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    mapped_anew, kept = map(int, result.stdout.split())
    assert kept < mapped_anew / 10
