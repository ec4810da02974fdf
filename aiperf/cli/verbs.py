"""The table of verbs by group, and the help text made of it."""

import difflib

from aiperf.untrusted.text import shown

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "run": {
        "doctor": ("primary.doctor.cli:DOCTOR", "find every problem that a run would have, before it starts"),
        "screen": ("primary.screening.cli:SCREEN", "measure every device of every node, and name the bad ones"),
        "run": ("primary.cli:RUN", "start a timed run and print its score"),
        "resume": ("primary.cli:RESUME", "resume an interrupted run"),
        "stop": ("primary.background.stop:STOP", "end a run in order, from any shell of its node"),
        "status": ("analysis.verbs.status:STATUS", "show the progress of a run, from any shell"),
        "dashboard": ("dashboard.cli:DASHBOARD", "show runs live in a browser"),
    },
    "results": {
        "report": ("analysis.verbs.report:REPORT", "recompute score, tables and page of a run from its records"),
        "check": ("referee.check:CHECK", "check a result against every rule, and replay its search"),
        "compare": ("analysis.verbs.results:COMPARE", "put two results side by side"),
        "accept": ("analysis.verbs.acceptance:ACCEPT", "hold a result against a baseline, or against limits"),
        "trend": ("analysis.verbs.trend:TREND", "show results over time and versions, and mark what got worse"),
        "store": ("analysis.verbs.store:STORE_VERB", "keep results of months in one file"),
        "rank": ("referee.rank:RANK", "rank official results by score, energy or time"),
        "list": ("referee.listing.cli:LIST", "make the public list of signed results, a static site"),
        "scale": (
            "primary.scaling.cli:SCALE",
            "measure scaling: one configuration with more and more replicas or ranks",
        ),
        "audit": ("referee.audit.cli:AUDIT", "do drawn parts of a run's work again and compare"),
        "export": ("analysis.verbs.submission:EXPORT", "pack a run for submission; hand it to TensorBoard or MLflow"),
    },
    "cluster": {
        "nodes": ("primary.nodes.cli:NODES", "list hardware and software of a cluster's nodes"),
        "slurm": ("slurm.cli:SLURM", "write job scripts and cluster configuration, start a test cluster"),
        "dataset": ("workloads.datasets.cli:DATASET", "prepare, check or synthesize the images of a data set"),
    },
    "look inside": {
        "ops": ("replica.cli:OPS", "count the operations of a network"),
        "micro": ("replica.measure.micro.cli:MICRO", "measure single operators and the ceilings of this device"),
        "profile": ("replica.measure.profile.cli:PROFILE", "show where the time and memory of a training step go"),
        "search": ("replica.cli:SEARCH", "watch the architecture search without training"),
        "hpo": ("replica.cli:HPO", "watch the hyperparameter tuner without training"),
        "verify": ("analysis.verbs.report:VERIFY", "check every file of a run directory and list all problems"),
        "config": (
            "primary.importing.cli:CONFIG",
            "show the settings in force; import earlier configurations",
        ),
    },
    "plan": {
        "rehearse": (
            "rehearsal.verbs.rehearse:REHEARSE",
            "rehearse a run of any size in virtual time, with faults",
        ),
        "predict": ("rehearsal.verbs.predict:PREDICT", "predict the score of a planned cluster from rehearsals"),
    },
    "shell": {
        "completion": ("aiperf.cli.completion:COMPLETION", "print the completion script of bash, zsh or fish"),
    },
}
"""Every verb by group: where its `Command` lives (module and name), and what it does."""

VERBS = {verb: entry for group in GROUPS.values() for verb, entry in group.items()}


FOLLOW_UPS = {
    "report-scaling": "analysis.verbs.scaling:REPORT_SCALING",
    "report-profile": "analysis.verbs.profile:REPORT_PROFILE",
    "report-screening": "analysis.verbs.screening:REPORT_SCREENING",
}
"""Second halves of verbs, reached by `Command.follow_up`; not in the help."""


def unknown_verb(word: str) -> str:
    """The complaint about a word that is not a verb, with the nearest verb if one is near."""
    near = difflib.get_close_matches(word, VERBS, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown verb {shown(word)}; {hint}'aiperf --help' lists all verbs"


def help_text() -> str:
    """The text of `aiperf --help`."""
    width = max(map(len, VERBS))
    groups = "\n\n".join(
        f"{group}:\n" + "\n".join(f"  {verb:<{width}}  {summary}" for verb, (_, summary) in verbs.items())
        for group, verbs in GROUPS.items()
    )
    return (
        "usage: aiperf VERB [OPTIONS]\n\n"
        "AIPerf: benchmark an AI supercomputer by automated machine learning.\n\n"
        f"{groups}\n\n"
        "'aiperf help VERB' explains a verb and its options; 'aiperf --version' prints the version.\n\n"
        "example:\n  aiperf run --preset quick --output runs/first"
    )
