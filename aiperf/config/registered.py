"""Registered fingerprints: those that data sets must have, and the sites that computed them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from importlib import resources
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from aiperf.config.fingerprints import overall_fingerprint
from aiperf.config.toml_text import parse_toml

LEAST_SITES = 2
"""Sites whose equal values register a fingerprint."""

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""A SHA-256 in hexadecimal."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SiteEntry(_Part):
    """The values that one site computed from its own copy of a data set."""

    site: str = Field(min_length=1)
    date: datetime.date
    software: str = Field(min_length=1)
    train: Digest
    """Fingerprint of the training split."""
    validation: Digest
    archives: Mapping[str, Digest] = Field(min_length=1)
    """SHA-256 of the files that the data set was prepared from, by name."""


class Entry(_Part):
    """A data set: its fingerprint if it comes with the software, else the entries of sites."""

    fingerprint: Digest | None = None
    sites: tuple[SiteEntry, ...] = ()

    @property
    def registered(self) -> str | None:
        """The fingerprint that the data set must have; None as long as there is none.

        Sites register it if two or more have computed it, and no site another one.
        """
        if self.fingerprint is not None:
            return self.fingerprint
        names = {entry.site.casefold().strip() for entry in self.sites}
        values = {overall_fingerprint(entry.train, entry.validation) for entry in self.sites}
        return values.pop() if len(names) >= LEAST_SITES and len(values) == 1 else None


def registered_in(document: Mapping[str, Any]) -> dict[str, str]:
    """The registered fingerprints of a registry, by name of the data set.

    Raises ValueError if it is not one.
    """
    found = {name: Entry.model_validate(entry).registered for name, entry in document.items()}
    return {name: value for name, value in found.items() if value is not None}


def registered_fingerprints() -> dict[str, str]:
    """Those of the registry that comes with the software."""
    return registered_in(parse_toml(resources.files("aiperf.config").joinpath("fingerprints.toml").read_text("utf-8")))
