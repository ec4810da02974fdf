"""The registry of fingerprints: two sites register a value, and one that differs takes it back."""

import datetime
from importlib import resources
from typing import Any

import pytest
from pydantic import ValidationError

from aiperf.config.datasets import DATASETS, IMAGENET, REGISTERED
from aiperf.config.fingerprints import Entry, overall_fingerprint, registered_in
from aiperf.config.toml_text import parse_toml

TEXT = resources.files("aiperf.config").joinpath("fingerprints.toml").read_text("utf-8")


def entry(name: str, train: str = "a" * 64, **others: Any) -> dict[str, Any]:
    return {
        "site": name,
        "date": datetime.date(2026, 1, 31),
        "software": "aiperf-hpc 0.2.0",
        "train": train,
        "validation": "b" * 64,
        "archives": {"ILSVRC2012_img_train.tar": "c" * 64},
    } | others


@pytest.mark.parametrize(
    ("sites", "registered"),
    [
        ([], False),
        ([entry("north")], False),
        ([entry("north"), entry("south")], True),
        ([entry("north"), entry("North ")], False),
        ([entry("north"), entry("south", "d" * 64)], False),
        ([entry("north"), entry("south"), entry("east", "d" * 64)], False),
        ([entry("north"), entry("south"), entry("east")], True),
    ],
    ids=["none", "one", "two", "one twice", "two that differ", "two and one that differs", "three"],
)
def test_two_different_sites_register_a_value_and_no_other_must_differ(
    sites: list[dict[str, Any]], registered: bool
) -> None:
    value = overall_fingerprint("a" * 64, "b" * 64)
    assert registered_in({"imagenet": {"sites": sites}}) == ({"imagenet": value} if registered else {})


@pytest.mark.parametrize(
    "change", [{"train": "A" * 64}, {"site": ""}, {"archives": {}}, {"software": ""}, {"more": 1}, {"date": "soon"}]
)
def test_an_entry_that_says_too_little_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        registered_in({"imagenet": {"sites": [entry("north", **change)]}})


def test_the_registry_of_the_software_is_whole_and_its_sites_agree() -> None:
    document = parse_toml(TEXT)
    assert set(document) <= set(DATASETS)
    assert registered_in(document) == REGISTERED
    for name, found in document.items():
        values = {(site.train, site.validation) for site in Entry.model_validate(found).sites}
        assert len(values) <= 1, f"the sites of {name} differ"


def test_the_form_of_the_registry_is_an_entry_when_it_is_filled() -> None:
    """A site uncomments it: each empty or described hash is then one."""
    form = TEXT[TEXT.index("# [[imagenet.sites]]") :]
    filled = "\n".join(line.removeprefix("# ") for line in form.splitlines())
    for words in ("sha256sum of fingerprints-train.bin", "sha256sum of fingerprints-validation.bin"):
        filled = filled.replace(words, "a" * 64)
    (site,) = Entry.model_validate(parse_toml(filled.replace('""', f'"{"c" * 64}"'))[IMAGENET.name]).sites
    assert len(site.archives) == 3
