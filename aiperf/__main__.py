"""The command `aiperf`: each verb is loaded only when it is called."""

import signal
import sys

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C ends a program whose modules are still being imported, without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import atexit
import difflib
import errno
import gc
import os
import pwd
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any, NoReturn

from aiperf import __version__
from aiperf.cli.waiting import begin, finish, waiting

if __name__ == "__main__":  # early, as in `aiperf_hpc`: a busy machine imports the rest in seconds
    begin(sys.argv[1:])

from aiperf.cli.command import Command, add_debug, help_of, load_command
from aiperf.cli.lines import say, say_text
from aiperf.cli.packages import copied, foreign, lost
from aiperf.cli.program import as_typed
from aiperf.cli.verbs import FOLLOW_UPS, VERBS, help_text, unknown_verb
from aiperf.errors import EXIT_DONE, EXIT_ENVIRONMENT, EXIT_FAILED, EXIT_USAGE, AiperfError
from aiperf.files import keep_others_from_writing
from aiperf.signals import hold_warnings
from aiperf.storage.error_texts import in_words
from aiperf.untrusted.text import as_message, shown

BEFORE = "interrupted; nothing was changed"
"""Message of Ctrl-C before a verb began."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; the exit code is 0 done, 1 failed, 2 usage, 3 environment."""
    keep_others_from_writing()
    _settle_home()
    hold_warnings()
    if "_ARGCOMPLETE" in os.environ:
        from aiperf.cli.completion import complete  # noqa: PLC0415

        complete()
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if not words or words[0] in ("-h", "--help"):
        say_text(help_text())
        return EXIT_DONE if words else EXIT_USAGE
    if words[0] == "--version":
        say(f"aiperf {__version__}")
        return EXIT_DONE
    if wrong := [word for word in words if "\0" in word]:
        return _complain([f"{shown(wrong[0])} holds a NUL character, which no path and no setting does"], EXIT_USAGE)
    if words[0] not in VERBS and words[0] not in FOLLOW_UPS:
        return _complain([unknown_verb(words[0])], EXIT_USAGE)
    return _run_verb(words[0], words[1:])


def _settle_home() -> None:
    """Give libraries a home and a name if the user has neither, as in a container with a bare uid.

    They ask for them while they are imported, and their errors would cost a run its report.
    """
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        os.environ.setdefault("USER", f"uid{os.getuid()}")
        if "HOME" not in os.environ:
            folder = tempfile.mkdtemp(prefix="aiperf-home-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            os.environ["HOME"] = folder


class _Parser(argparse.ArgumentParser):
    """Complains of unknown options with the nearest known one."""

    def error(self, message: str) -> NoReturn:
        """End the program with exit code 2."""
        unknown = message.removeprefix("unrecognized arguments: ").partition(" ")[0].partition("=")[0]
        if message.startswith("unrecognized arguments: --"):
            options = [text for action in self._actions for text in action.option_strings]
            if near := difflib.get_close_matches(unknown, options, n=1):
                message += f"; did you mean {near[0]}?"
        words = self.prog.removeprefix("aiperf ")
        super().error(as_typed(as_message([f"{message}; what it takes: aiperf help {words}"])))

    def _print_message(self, message: str, file: Any = None) -> None:
        finish()  # help, usage and complaints begin on a line of their own
        super()._print_message(message, file)


def parser_of(verb: str) -> argparse.ArgumentParser:
    """The parser of a verb's options."""
    command = load_command(verb)
    parser = _Parser(
        prog=f"aiperf {verb}",
        **help_of(command.description, command.example),
    )
    add_debug(parser)
    command.configure(parser)
    return parser


def _run_verb(verb: str, words: list[str]) -> int:
    with waiting(verb):  # from here on: libraries may come from a cold, shared file system
        code, following = _executed(load_command(verb), parser_of(verb).parse_args(words))
    return max(code, main(following)) if following else code


def _executed(command: Command, arguments: argparse.Namespace) -> tuple[int, list[str]]:
    """The exit code of a verb, and the words of the one that follows it."""
    try:
        code = command.execute(arguments)
        return code, command.follow_up(arguments)
    except AiperfError as error:
        if arguments.debug:
            raise
        return _complain(error.lines, error.exit_code), []
    except OSError as error:
        # Python makes a BrokenPipeError of ESHUTDOWN, too, the answer of a server that is away.
        if error.errno == errno.EPIPE and error.filename is None:
            # The reader of our output is gone, which is not our error: keep the interpreter from
            # reporting it again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_FAILED, []
        if arguments.debug:
            raise
        # A file that cannot be read, a full disk: the machine's fault, not the program's.
        return _complain([in_words(error)], EXIT_ENVIRONMENT), []
    except BaseException as error:
        if arguments.debug or not _is_interrupt(error):
            raise
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # an impatient second one must not break the line
        return _complain([f"interrupted; {command.leaves(arguments)}"], EXIT_FAILED), []


def _is_interrupt(error: BaseException | None) -> bool:
    """True if Ctrl-C led to this error: libraries wrap what comes while they make their classes.

    Python 3.11 makes a RuntimeError of it, pydantic a SchemaError that has it in its text alone.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt) or KeyboardInterrupt.__name__ in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _complain(lines: Sequence[object], code: int) -> int:
    finish()
    sys.stderr.write(f"aiperf: {as_typed(as_message(lines))}\n")
    return code


def start() -> int:
    """Run the verb that was typed, if all that would run are AIPerf's own packages."""
    try:
        if problems := foreign() or copied():
            return _complain(problems, EXIT_ENVIRONMENT)
        return main()
    except BaseException as error:
        if _is_interrupt(error):  # before the verb began
            return _complain([BEFORE], EXIT_FAILED)
        if not isinstance(error, ImportError) or not (problems := lost(error)):
            raise
        return _complain(problems, EXIT_ENVIRONMENT)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done: what ends with the process ends whole
        # Python's end would look for garbage in all that was imported: a second for TensorFlow.
        gc.freeze()


if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(start())
