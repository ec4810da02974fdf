"""Scientific data in the verb `aiperf dataset`."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from aiperf.cli.command import add_debug, help_of, whole_number
from aiperf.cli.lines import say, warn
from aiperf.config.dataset_manifest import Split
from aiperf.errors import EXIT_DONE, DatasetError
from aiperf.host import this_host
from workloads.datasets.progress import say_findings, shown_progress

COUNT = whole_number(1)

KINDS: dict[str, tuple[str, int, int, int]] = {
    "hep": ("images of particle collisions", 8000, 3000, 32),
    "ewa": ("global weather with boxes around extreme events", 480, 64, 96),
    "cos": ("cubes of dark matter, and the parameters of their universes", 4096, 512, 16),
    "cos-fields": ("cubes of one universe, of which fields are cut", 240, 60, 32),
}
"""Generated data sets: their words, and the rehearsals' numbers of samples and size."""


NAMES = "|".join(KINDS)


class KindParser:
    """A parser that leaves its words to another one if the first is the name of a kind."""

    kinds: dict[str, argparse.ArgumentParser]

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        """Parse by the kind's parser, or by this one."""
        kinds = getattr(self, "kinds", {})
        if args and args[0] in kinds:
            return kinds[args[0]].parse_known_args(args[1:], namespace)
        return super().parse_known_args(args, namespace)  # type: ignore[misc]


def kind_parser(base: type[argparse.ArgumentParser]) -> type[argparse.ArgumentParser]:
    """The class of parsers with kinds, otherwise as `base`."""
    return cast(type[argparse.ArgumentParser], type("KindParser", (KindParser, base), {}))


def add_kinds(parser: argparse.ArgumentParser) -> None:
    """Add the parsers of `aiperf dataset synthesize hep|ewa|cos|cos-fields`."""
    parsers = {}
    for name, (words, train, validation, size) in KINDS.items():
        about = help_of(f"Generate {words}.", f"{parser.prog} {name} /data/{name}")
        own = type(parser)(prog=f"{parser.prog} {name}", **about)
        add_debug(own, default=argparse.SUPPRESS)
        own.add_argument("output", type=Path, metavar="DIR", help="new folder for the files")
        none = whole_number(0)
        numbers = [
            ("--images", "N", COUNT, train, "training samples"),
            ("--validation", "N", COUNT, validation, "validation samples"),
            *([("--test", "N", none, 0, "test samples")] if name == "hep" else []),
            ("--size", "S", COUNT, size, "rows of the grid"),
            ("--seed", "K", none, 1, "seed of all random numbers"),
        ]
        for option, letter, kind, default, meaning in numbers:
            own.add_argument(
                option, type=kind, default=default, metavar=letter, help=f"{meaning} (default: %(default)s)"
            )
        own.add_argument(
            "--workers",
            type=COUNT,
            default=this_host().usable_cpus(),
            metavar="N",
            help="processes (default: one for each CPU)",
        )
        own.set_defaults(kind=name)
        parsers[name] = own
    cast(KindParser, parser).kinds = parsers


def synthesize(arguments: argparse.Namespace) -> int:
    """Generate the data set of a kind."""
    from workloads.datasets.science import synthesize as science  # noqa: PLC0415

    images: dict[Split, int] = {"train": arguments.images, "validation": arguments.validation}
    if test := getattr(arguments, "test", 0):
        images["test"] = test
    recipe = science.ScienceRecipe(arguments.kind, images, arguments.size, arguments.seed)
    with shown_progress() as report:
        manifest = science.synthesize(recipe, arguments.output, report, arguments.workers)
    return _made(manifest, arguments.output)


def prepares(source: Path) -> bool:
    """True if a source of `prepare` holds scientific data."""
    from workloads.datasets.science.describe import recognised, refusals  # noqa: PLC0415
    from workloads.datasets.science.universes import universes  # noqa: PLC0415

    return bool(universes(source)) or recognised(source) is not None or bool(refusals(source))


def prepare(arguments: argparse.Namespace) -> int:
    """Cut universes into cubes. Raises DatasetError for files that need no preparation."""
    from workloads.datasets.science.describe import recognised, refusals  # noqa: PLC0415
    from workloads.datasets.science.universes import cut, universes  # noqa: PLC0415

    if not universes(arguments.source):
        if recognised(arguments.source) is None:
            raise DatasetError(*refusals(arguments.source))
        raise DatasetError(
            f"{arguments.source}: its files are trained as they are; describe them with: "
            f"aiperf dataset check {arguments.source} --write-manifest"
        )
    with shown_progress() as report:
        manifest = cut(arguments.source, arguments.output, report, arguments.workers)
    say_preparation(arguments.output, manifest.fingerprint)
    return _made(manifest, arguments.output)


def say_preparation(output: Path, fingerprint: str | None) -> None:
    """Say what a preparation left out, converted or doubted."""
    from workloads.datasets.preparation import REPORT_NAME, read_preparation  # noqa: PLC0415

    preparation = read_preparation(output, fingerprint)
    notes = list(preparation.lines()) if preparation else []
    for line in notes:
        warn(f"note: {line}")
    if notes:
        warn(f"note: all names are in {output / REPORT_NAME}")


def describes(directory: Path) -> bool:
    """True if files of a directory have names of scientific data, or if it is described as such."""
    from workloads.data.manifest import is_science  # noqa: PLC0415
    from workloads.datasets.science.describe import recognised, refusals  # noqa: PLC0415

    return is_science(directory) or recognised(directory) is not None or bool(refusals(directory))


def describe(arguments: argparse.Namespace) -> int:
    """Write the description of files that were made elsewhere."""
    from workloads.datasets.science import describe as science  # noqa: PLC0415

    notes: list[str] = []
    with shown_progress() as report:
        manifest = science.describe(arguments.directory, report, arguments.workers, notes)
    for note in notes:
        warn(f"note: {note}")
    return _made(manifest, arguments.directory)


def checks(directory: Path) -> bool:
    """True if the description of a directory is that of scientific data."""
    from workloads.data.manifest import is_science  # noqa: PLC0415

    return is_science(directory)


def check(arguments: argparse.Namespace) -> int:
    """Read every sample, and print all problems."""
    from workloads.datasets.science import check as science  # noqa: PLC0415

    with shown_progress() as report:
        result = science.check(arguments.directory, report, arguments.workers)
    counts = _counts(result.images)
    return say_findings(result.problems, result.notes, counts)


def _counts(images: Mapping[Split, int]) -> str:
    test = f", and {images['test']} test samples" if "test" in images else ""
    return f"{images['train']} training and {images['validation']} validation samples{test}"


def _made(manifest: Any, output: Path) -> int:
    counts = _counts({split: manifest.split(split).images for split in manifest.splits})
    say(f"{output}: {counts} of {' x '.join(map(str, manifest.grid))}, {manifest.format}, {manifest.source}")
    say(f"fingerprint {manifest.fingerprint}")
    return EXIT_DONE
