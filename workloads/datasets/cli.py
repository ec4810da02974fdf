"""The verb `aiperf dataset`: make and check directories of images and of scientific data."""

import argparse
import os
from pathlib import Path

from aiperf.cli.command import Command, add_action, whole_number
from aiperf.cli.lines import say, warn
from aiperf.config.dataset_manifest import MANIFEST_NAME, DatasetManifest, Split
from aiperf.errors import EXIT_DONE, DatasetError, UsageError
from aiperf.host import this_host
from aiperf.untrusted.reading import shortened
from workloads.datasets.progress import say_findings, shown_progress
from workloads.datasets.science import cli as science

TRAIN_SHARDS, VALIDATION_SHARDS = 1024, 128
"""Usual numbers of shards for ImageNet."""

WORKERS = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": ""}
"""Environment of the worker processes, which decode images on the CPU.

Without it each of them would write lines about libraries that it does not use, and take GPUs.
"""

PREPARE_EXAMPLE = "aiperf dataset prepare /downloads/ilsvrc2012 /data/imagenet"

COUNT = whole_number(1)
"""Type of options that count something."""


def _configure(parser: argparse.ArgumentParser) -> None:
    parsers = science.kind_parser(type(parser))
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="prepare|check|synthesize", parser_class=parsers
    )  # fmt: skip
    prepare = add_action(actions, "prepare", "make TFRecord shards from ILSVRC2012's archives or image folders",
                         PREPARE_EXAMPLE)  # fmt: skip
    prepare.add_argument(
        "source",
        type=Path,
        metavar="SOURCE",
        help="folder with the archives, with train/ and validation/, or with universes",
    )
    prepare.add_argument(
        "output", type=Path, metavar="DIR", help="folder for the shards; an interrupted preparation there is resumed"
    )
    _sharding(prepare, TRAIN_SHARDS, VALIDATION_SHARDS)
    check = add_action(actions, "check", "read every image and list all problems",
                       "aiperf dataset check /data/imagenet --workers 32")  # fmt: skip
    check.add_argument("directory", type=Path, metavar="DIR", help="directory of the data set")
    check.add_argument("--write-manifest", action="store_true", help="describe files that another tool made")
    synthesize = add_action(
        actions, "synthesize", f"draw JPEG images of invented classes; scientific data: synthesize {science.NAMES} DIR",
        "aiperf dataset synthesize /data/invented --train 2048",
    )  # fmt: skip
    synthesize.add_argument("output", type=Path, metavar="DIR", help="new folder for the shards")
    _number(synthesize, "--train", 2048, "training images")
    _number(synthesize, "--validation", 256, "validation images")
    _number(synthesize, "--classes", 10, "classes")
    _number(synthesize, "--height", 375, "height of the images")
    _number(synthesize, "--width", 500, "width of the images")
    synthesize.add_argument("--seed", type=int, default=1, metavar="N",
                            help="seed of all random numbers (default: %(default)s)")  # fmt: skip
    _sharding(synthesize, 8, 2)
    synthesize.set_defaults(kind=None)
    science.add_kinds(synthesize)
    for action in (prepare, synthesize):
        _number(action, "--image-size", 224, "side of the trained crop")
    check.add_argument("--image-size", type=COUNT, metavar="N",
                       help="side of the trained crop (default: as described, else 224)")  # fmt: skip
    for action in (prepare, check, synthesize):
        action.add_argument("--workers", type=COUNT, default=this_host().usable_cpus(), metavar="N",
                            help="processes (default: one for each CPU)")  # fmt: skip


def _sharding(parser: argparse.ArgumentParser, train: int, validation: int) -> None:
    _number(parser, "--train-shards", train, "files of training images")
    _number(parser, "--validation-shards", validation, "files of validation images")


def _number(parser: argparse.ArgumentParser, name: str, default: int, meaning: str) -> None:
    parser.add_argument(name, type=COUNT, default=default, metavar="N", help=f"{meaning} (default: %(default)s)")


def _execute(arguments: argparse.Namespace) -> int:
    # Before workers start, which inherit it.
    os.environ.update(WORKERS)
    actions = {"prepare": _prepare, "check": _check, "synthesize": _synthesize}
    return actions[arguments.action](arguments)


def _shards(arguments: argparse.Namespace) -> dict[Split, int]:
    return {"train": arguments.train_shards, "validation": arguments.validation_shards}


def _prepare(arguments: argparse.Namespace) -> int:
    if science.prepares(arguments.source):
        return science.prepare(arguments)
    from workloads.datasets.prepare import prepare  # noqa: PLC0415
    from workloads.datasets.sources import open_source  # noqa: PLC0415

    source = open_source(arguments.source)
    shards = _shards(arguments)
    with shown_progress() as report:
        manifest = prepare(source, arguments.output, shards, arguments.image_size, report, arguments.workers)
    science.say_preparation(arguments.output, manifest.fingerprint)
    return _made(manifest, arguments.output)


def _synthesize(arguments: argparse.Namespace) -> int:
    if arguments.kind is not None:
        return science.synthesize(arguments)
    from workloads.datasets.synthesize import Recipe, synthesize  # noqa: PLC0415

    images: dict[Split, int] = {"train": arguments.train, "validation": arguments.validation}
    shards = _shards(arguments)
    for split, count in shards.items():
        if images[split] < max(count, arguments.classes):
            raise UsageError(f"{images[split]} {split} images are too few for {count} shards of all classes")
    if arguments.classes < 2:
        raise UsageError("--classes: at least 2 classes are needed")
    recipe = Recipe(
        images, shards, arguments.classes, arguments.height, arguments.width, arguments.image_size, arguments.seed
    )
    with shown_progress() as report:
        manifest = synthesize(recipe, arguments.output, report, arguments.workers)
    return _made(manifest, arguments.output)


def _check(arguments: argparse.Namespace) -> int:
    if arguments.write_manifest:
        return _describe(arguments)
    if science.checks(arguments.directory):
        return science.check(arguments)
    from workloads.datasets.check import check  # noqa: PLC0415

    _require_description(arguments.directory)
    with shown_progress() as report:
        result = check(arguments.directory, report, arguments.workers)
    counts = f"{result.images['train']} training and {result.images['validation']} validation images"
    return say_findings(result.problems, result.notes, f"{counts} of {result.classes} classes")


def _require_description(directory: Path) -> None:
    """Raise DatasetError for a directory without a description, or with another program's."""
    from workloads.data.manifest import FORMAT_NAMES, described_format  # noqa: PLC0415
    from workloads.datasets.layouts import WANTED, found_in, shards_in_folders  # noqa: PLC0415

    path = directory / MANIFEST_NAME
    if not path.is_file():
        if shards := shards_in_folders(directory):
            raise DatasetError(f"{directory}: {shards}")
        if (directory / "train").is_dir() or any(directory.glob("train-?????-of-?????")):
            way_out = f"make it with: aiperf dataset check {directory} --write-manifest"
            raise DatasetError(f"{directory}: has no {MANIFEST_NAME}; {way_out}")
        raise DatasetError(f"{directory}: {found_in(directory)}; {WANTED}, and its {MANIFEST_NAME}")
    form = described_format(directory)
    known = ("tfrecord", "folder", *FORMAT_NAMES)
    if form is not None and form not in known:
        raise DatasetError(f"{path}: has the format {shortened(form, 40)!r}; known are {', '.join(known)}")


def _describe(arguments: argparse.Namespace) -> int:
    directory = arguments.directory
    if science.describes(directory):
        return science.describe(arguments)
    from workloads.datasets.check import describe, description_notes  # noqa: PLC0415

    with shown_progress() as report:
        manifest = describe(directory, arguments.image_size, report, arguments.workers)
    for note in description_notes(directory, manifest):
        warn(f"note: {note}")
    return _made(manifest, directory)


def _made(manifest: DatasetManifest, output: Path) -> int:
    counts = f"{manifest.train.images} training and {manifest.validation.images} validation images"
    say(f"{output}: {counts} of {len(manifest.class_names)} classes, {manifest.format}")
    say(f"fingerprint {manifest.fingerprint}")
    return EXIT_DONE


DATASET = Command(
    description="Prepare, check or synthesize data sets: images in TFRecords, scientific data (hep, ewa, cos).",
    example=PREPARE_EXAMPLE,
    configure=_configure,
    execute=_execute,
)
