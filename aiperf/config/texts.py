"""Types of settings that are texts: without control characters, of limited length, some by pattern.

SLURM, ssh and shells read what these settings hold.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from aiperf.untrusted.text import has_control

MOST_ENTRIES = 100_000
"""Upper limit for the entries of a list."""


@dataclass(frozen=True, slots=True)
class TextRule:
    """A rule for a text; `words` say what is allowed, `example` is allowed."""

    most: int = 1000
    pattern: str = ""
    words: str = "a text"
    example: str = "TEXT"

    @property
    def allowed(self) -> str:
        """The rule in words."""
        if self.pattern:
            return f"{self.words}, at most {self.most} characters"
        return f"{self.words} of 1 to {self.most} characters, without control characters"

    def meets(self, text: str) -> bool:
        """True if a text keeps to the rule."""
        return (
            1 <= len(text) <= self.most
            and not has_control(text)
            and (not self.pattern or re.fullmatch(self.pattern, text, re.ASCII) is not None)
        )

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check(), handler(source))

    def _check(self) -> Callable[[Any], Any]:
        def check(text: str) -> str:
            if not self.meets(text):
                raise PydanticCustomError("text_rule", "not allowed")
            return text

        return check


_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?"

NODE_NAME = TextRule(253, _LABEL, "a name of a node (letters, digits, - and .)", "n1")
CLUSTER_NAME = TextRule(40, r"[A-Za-z0-9_][A-Za-z0-9_-]*", "a name of a cluster (letters, digits, - and _)", "aiperf")
ADDRESS = TextRule(253, r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]*", "a name or address of a node", "10.0.0.1")
HOST = TextRule(
    1000, r"[A-Za-z0-9_\[:][A-Za-z0-9_.@:\[\],%+-]*", "a host ([user@]host[:port], or a name of ~/.ssh/config)", "n1"
)
"""Names of nodes. None begins with a dash, which programs take for an option."""

_SLURM_NAME = TextRule(
    1000, r"[A-Za-z0-9_][\w.@:+,/-]*", "a name as SLURM writes it (letters, digits and ._-+@:/,)", "NAME"
)
_FEATURES = TextRule(1000, r"[A-Za-z0-9_\[(][\w.@:+,/|&*()\[\]=!-]*", "features as SLURM writes them", "a100&ib")
_TIME = TextRule(
    40,
    r"\d{1,9}(:\d{1,9}){0,2}|\d{1,9}-\d{1,9}(:\d{1,9}){0,2}|[Uu][Nn][Ll][Ii][Mm][Ii][Tt][Ee][Dd]|INFINITE",
    "a time limit: 13:00:00 (hours:minutes:seconds), 1-12 (days-hours), 90 (minutes) or UNLIMITED",
    "13:00:00",
)
_MEMORY = TextRule(40, r"[1-9]\d{0,14}[KMGTkmgt]?[Bb]?", "a size of memory: 200G, 512000M or 1T", "200G")
_OPTION = TextRule(1000, r"-.*", "an option that begins with -", "--nice=100")

Line = Annotated[str, TextRule()]
"""A text of one line."""
ShellLine = Annotated[str, TextRule(4000)]
PathText = Annotated[str, TextRule(4000)]
"""The path of a file or folder."""
RunName = Annotated[str, TextRule(100)]
Interface = Annotated[str, TextRule(64, r"[A-Za-z0-9_][A-Za-z0-9_.:@-]*", "a network interface (ip link)", "ib0")]
RayResource = Annotated[str, TextRule(64, r"[A-Za-z_][A-Za-z0-9_.-]*", "a resource of Ray (ray status)", "NPU")]
Host = Annotated[str, HOST]
RayAddress = Annotated[str, TextRule(1000, r"[A-Za-z0-9_\[][\w.:%/\[\]-]*", "an address (host:port, or auto)", "auto")]
SlurmName = Annotated[str, _SLURM_NAME]
SlurmFeatures = Annotated[str, _FEATURES]
SlurmTime = Annotated[str, _TIME]
SlurmMemory = Annotated[str, _MEMORY]
SlurmOption = Annotated[str, _OPTION]
