"""The verbs of the replica's side: `aiperf ops`, `aiperf search`, `aiperf hpo`."""

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

from aiperf.cli.command import Command, add_format, whole_number
from aiperf.cli.console import open_console
from aiperf.cli.lines import say, say_json, say_text, warn
from aiperf.cli.waiting import note
from aiperf.config.datasets import IMAGENET
from aiperf.errors import EXIT_DONE, UsageError
from aiperf.network.operations import NetworkCount
from aiperf.network.padding import padding_operations
from aiperf.network.science import RULE_SETS
from aiperf.run_directory.micro_results import read_peaks
from replica.measure.counting import view
from replica.measure.counting.source import ARCHITECTURES, CountSource, file_source, named_source
from replica.search.demo.view import print_hpo, print_search
from replica.search.strategies import STRATEGIES
from replica.search.tuners import TUNERS

T = TypeVar("T")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="architecture JSON, .keras file, or run directory"
    )
    parser.add_argument(
        "--architecture",
        choices=ARCHITECTURES,
        metavar="NAME",
        help="network to count instead of a file ('aiperf ops' alone lists all)",
    )
    parser.add_argument(
        "--image-size", type=int, default=224, metavar="PIXELS", help="side of the images (default: %(default)s)"
    )
    parser.add_argument(
        "--classes", type=int, default=1000, metavar="N", help="number of classes (default: %(default)s)"
    )
    parser.add_argument("--trial", type=int, metavar="N", help="the trial of a run directory")
    parser.add_argument("--batch", type=whole_number(1), metavar="N", help="also count a step of this many images")
    parser.add_argument("--images", type=whole_number(1), metavar="N", help="also count an epoch of this many images")
    parser.add_argument("--validation-images", type=whole_number(1), metavar="N", help="images evaluated in that epoch")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="compare with TensorFlow's profiler and XLA's cost analysis (takes a minute)",
    )
    parser.add_argument("--roofline", action="store_true", help="add what bounds each layer: computing or memory")
    parser.add_argument(
        "--micro", type=Path, metavar="FILE", help="the device's ceilings, as 'aiperf micro --output FILE' writes them"
    )
    parser.add_argument(
        "--rule-set",
        choices=tuple(RULE_SETS),
        help="rules of the count (default: aiperf-1; of scientific networks science-1)",
    )
    add_format(parser, ("table", "json", "csv"))


def _execute(arguments: argparse.Namespace) -> int:
    source = _source(arguments)
    if arguments.rule_set is not None:
        source = replace(source, rule_set=RULE_SETS[arguments.rule_set])
    count = source.count()
    amounts = view.Amounts(arguments.batch, arguments.images, arguments.validation_images, source.rule_set.name)
    if arguments.roofline or arguments.micro is not None:
        _roofline(arguments, source, count, amounts)
    elif arguments.verify:
        _verify(arguments, source, count, amounts)
    elif arguments.format == "json":
        say_json(json.dumps(view.as_document(source.name, count, amounts), indent=2))
    elif arguments.format == "csv":
        say_text(view.as_csv(count))
    else:
        view.print_tables(open_console(), source.name, count, amounts)
    return EXIT_DONE


def _source(arguments: argparse.Namespace) -> CountSource:
    if (arguments.file is None) == (arguments.architecture is None):
        raise UsageError(f"name either a FILE or --architecture {'|'.join(ARCHITECTURES)}")
    if arguments.architecture is not None:
        if arguments.trial is not None:
            raise UsageError("--trial needs a run directory, not --architecture")
        return named_source(arguments.architecture, arguments.image_size, arguments.classes)
    return file_source(arguments.file, arguments.trial)


def _roofline(arguments: argparse.Namespace, source: CountSource, count: NetworkCount, amounts: view.Amounts) -> None:
    if arguments.format == "csv" or arguments.verify:
        raise UsageError("--roofline prints a table or JSON, and goes without --verify")
    peaks = None if arguments.micro is None else read_peaks(arguments.micro)
    if arguments.format == "json":
        document = view.as_document(source.name, count, amounts)
        view.add_roofline(document, count, peaks, amounts.batch or 1)
        say_json(json.dumps(document, indent=2))
    else:
        view.print_tables(open_console(), source.name, count, amounts)
        view.print_roofline(open_console(), count, peaks, amounts.batch or 1)


def _verify(arguments: argparse.Namespace, source: CountSource, count: NetworkCount, amounts: view.Amounts) -> None:
    if arguments.format == "csv":
        raise UsageError("--verify prints a table or JSON, not CSV")
    model = source.model()  # before the profilers' module: it reports if TensorFlow is missing
    from replica.measure.counting.gpu_counters import why_not  # noqa: PLC0415
    from replica.measure.counting.profilers import verify  # noqa: PLC0415

    if reason := why_not():
        warn(f"note: the GPU's counters are not read: {reason}")

    with source.file() as path:
        found = [
            view.Comparison(item.source, item.forward, forward, item.training, training)
            for item in verify(path, model, source.rule_set)
            for forward, training in [item.differences(count.operations)]
        ]
    if amounts.images is None and amounts.validation_images is None:
        amounts = replace(amounts, images=IMAGENET.train_images, validation_images=IMAGENET.validation_images)
    if arguments.format == "json":
        document = view.as_document(source.name, count, amounts)
        document["verification"] = [asdict(row) for row in found]
        if source.architecture is not None:
            document["padding_forward"] = padding_operations(source.architecture)
        say_json(json.dumps(document, indent=2))
    else:
        view.print_tables(open_console(), source.name, count, amounts)
        view.print_verification(open_console(), count.operations, found, amounts)
        if source.architecture is not None:
            zeros = padding_operations(source.architecture)
            share = zeros / count.operations.forward
            say(f"multiplications with padding zeros, which XLA leaves out: {zeros:,} forward ({share:.2%})")


def _configure_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--steps", type=whole_number(1), default=10, metavar="N", help="proposals to make (default: %(default)s)"
    )
    parser.add_argument(
        "--history",
        type=whole_number(0),
        default=1,
        metavar="H",
        help="architectures to start from, the initial one included (default: %(default)s)",
    )
    parser.add_argument("--objective", default="peak", metavar="NAME", help="depth, peak or mixture (default: peak)")
    parser.add_argument(
        "--strategy", default="bayesian", metavar="NAME", help=f"{', '.join(STRATEGIES)} (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=whole_number(0), default=1, metavar="S", help="the same seed gives the same steps"
    )
    add_format(parser)


def _search(arguments: argparse.Namespace) -> int:
    from replica.search.demo.architectures import OBJECTIVES, SearchDemo  # noqa: PLC0415

    for option, known in (("objective", tuple(OBJECTIVES)), ("strategy", tuple(STRATEGIES))):
        _require_known(option, getattr(arguments, option), known)
    demo = SearchDemo(arguments.objective, arguments.strategy, arguments.history, arguments.seed)
    steps = _counted(demo.steps(arguments.steps), arguments.steps)
    if arguments.format == "json":
        say_json(json.dumps([asdict(step) for step in steps], indent=2))
    else:
        print_search(open_console(), steps)
    return EXIT_DONE


def _configure_hpo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--steps", type=whole_number(1), default=40, metavar="N", help="suggestions to make (default: %(default)s)"
    )
    parser.add_argument(
        "--objective", default="sphere", metavar="NAME", help="sphere, rosenbrock or rastrigin (default: %(default)s)"
    )
    parser.add_argument("--strategy", default="tpe", metavar="NAME", help=f"{', '.join(TUNERS)} (default: %(default)s)")
    parser.add_argument(
        "--seed", type=whole_number(0), default=1, metavar="S", help="the same seed gives the same steps"
    )
    add_format(parser)


def _hpo(arguments: argparse.Namespace) -> int:
    from replica.search.demo.hyperparameters import OBJECTIVES, steps  # noqa: PLC0415

    for option, known in (("objective", tuple(OBJECTIVES)), ("strategy", tuple(TUNERS))):
        _require_known(option, getattr(arguments, option), known)
    found = _counted(steps(arguments.objective, arguments.strategy, arguments.steps, arguments.seed), arguments.steps)
    if arguments.format == "json":
        say_json(json.dumps([asdict(step) for step in found], indent=2))
    else:
        print_hpo(open_console(), found)
    return EXIT_DONE


def _counted(steps: Iterable[T], number: int) -> Iterator[T]:
    """These steps, with a note of how many are done."""
    for done, step in enumerate(steps, start=1):
        note(f"{done} of {number} steps")
        yield step


def _require_known(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"--{option} is {value!r}; known: {', '.join(known)}")


SEARCH = Command(
    description="Watch the architecture search without training: propose, evaluate a synthetic objective, repeat.",
    example="aiperf search --steps 30 --objective peak --strategy bayesian --seed 1",
    configure=_configure_search,
    execute=_search,
)

HPO = Command(
    description="Watch the hyperparameter tuner without training: suggest, evaluate a synthetic objective, repeat.",
    example="aiperf hpo --steps 40 --objective rosenbrock --strategy tpe --seed 1",
    configure=_configure_hpo,
    execute=_hpo,
)

OPS = Command(
    description="Count the operations of a network by its rule set: per image, forward and backward, by type.",
    example="aiperf ops --architecture resnet50 --image-size 224 --classes 1000 --images 1281167",
    configure=_configure,
    execute=_execute,
)
