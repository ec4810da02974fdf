"""Completion of the command line in bash, zsh and fish, by argcomplete."""

import argparse
import os
import sys

import argcomplete
from argcomplete.shell_integration import shellcode

from aiperf.cli.command import Command, load_command
from aiperf.cli.verbs import VERBS
from aiperf.errors import EXIT_DONE

SHELLS = ("bash", "zsh", "fish")


def complete() -> None:
    """Answer the shell's question for the words that may follow, and end the process.

    Only the verb on the command line is loaded: a completion must not wait for the others.
    """
    typed = os.environ.get("COMP_LINE", "").split()
    parser = argparse.ArgumentParser(prog="aiperf")
    parser.add_argument("--version", action="store_true")
    verbs = parser.add_subparsers()
    verbs.add_parser("help").add_argument("verb", choices=list(VERBS))
    for verb in VERBS:
        own = verbs.add_parser(verb)
        if len(typed) > 1 and typed[1] == verb:
            load_command(verb).configure(own)
    argcomplete.autocomplete(parser)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell to write the script for")


def _execute(arguments: argparse.Namespace) -> int:
    sys.stdout.write(shellcode(["aiperf"], shell=arguments.shell))
    return EXIT_DONE


COMPLETION = Command(
    description='Print the completion script of a shell; for bash: eval "$(aiperf completion bash)".',
    example="aiperf completion bash > ~/.local/share/bash-completion/completions/aiperf",
    configure=_configure,
    execute=_execute,
)
