"""One device by itself: `python -m replica.measure.screen --device gpu0 --kind MODEL`.

It prints a line when it is ready, waits for a line, so that all devices begin together, and then
prints a row for each measure.
"""

import argparse
import os
import sys
from collections.abc import Iterator

from aiperf.clock import SystemClock
from aiperf.frameworks import import_lean
from aiperf.processes import MessageOutput
from aiperf.screening.messages import CPUS, READY, Row
from aiperf.signals import die_with_parent
from replica.measure.micro.stacks import STACKS
from replica.measure.screen.measures import Subject, copy_rates, decoding_rate, operator_rows


def main() -> int:
    """Measure the device that the environment leaves visible."""
    die_with_parent()
    parser = argparse.ArgumentParser(prog="python -m replica.measure.screen", description="Measure one device.")
    parser.add_argument("--device", required=True)
    parser.add_argument("--kind", required=True)
    parser.add_argument("--stack", required=True, choices=tuple(STACKS))
    parser.add_argument("--short", help="precision of 16 bits to measure")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cpus", type=int, default=1)
    arguments = parser.parse_args()
    output = MessageOutput()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if arguments.stack == "tensorflow":
        import_lean(arguments.stack)
    clock = SystemClock()
    subject = Subject(
        arguments.device,
        arguments.kind,
        arguments.stack,
        STACKS.load(arguments.stack)(),
        arguments.short,
        arguments.quick,
        clock.monotonic_s,
    )
    output.send(Row(device=subject.device, kind=subject.kind, measure=READY))
    if not sys.stdin.readline():
        return 1
    for row in operator_rows(subject):
        output.send(row)
    if subject.device != CPUS and arguments.stack == "torch":
        for row in copy_rows(subject):
            output.send(row)
    if subject.device == CPUS:
        output.send(subject.row("jpeg", *decoding_rate(arguments.cpus, clock.monotonic_s)))
    return 0


def copy_rows(subject: Subject) -> Iterator[Row]:
    """The copies between host and device; a failure is their problem."""
    torch = import_lean("torch")
    try:
        for measure, rate, spread in copy_rates(torch, subject.stack.device(), subject.quick, subject.seconds):
            yield subject.row(measure, rate, spread)
    except RuntimeError as error:
        yield Row(device=subject.device, kind=subject.kind, measure="to_device", problem=str(error)[:1000])


if __name__ == "__main__":
    sys.exit(main())
