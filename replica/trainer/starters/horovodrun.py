"""Ranks started by `horovodrun` with Gloo, which reaches other nodes by ssh.

Before its first rank it imports TensorFlow to see whether Horovod has Gloo: five seconds of every
training. `python -m replica.trainer.starters.horovodrun WORDS` is the same without that. Ranks of a
Horovod without Gloo end with its own words, and `aiperf doctor` says it before a run.
"""

import signal

from aiperf.processes import python_module
from aiperf.signals import die_with_parent
from replica.trainer.starters.contract import RankRequest


def start_with_horovodrun(request: RankRequest) -> list[str]:
    """Start with Horovod's own launcher, of the environment of the running Python."""
    hosts = request.hosts or ("localhost",)
    interface = request.interface or (None if request.hosts else "lo")
    slots = ",".join(f"{host}:{request.ranks_per_host}" for host in hosts)
    return [
        *python_module("replica.trainer.starters.horovodrun"),
        "--gloo",
        "-np",
        str(request.ranks),
        "-H",
        slots,
        *(("--network-interfaces", interface) if interface else ()),
        *request.command,
    ]


def main() -> None:
    """Run `horovodrun` without its look for Gloo, which imports TensorFlow."""
    from horovod.runner import launch  # noqa: PLC0415  (may not be installed, and loads no framework)

    die_with_parent(signal.SIGTERM)  # at which it ends its ranks
    launch.gloo_built = lambda verbose=False: True
    launch.run_commandline()


if __name__ == "__main__":
    main()
