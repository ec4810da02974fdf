"""AIPerf in a ReFrame suite: which node is bad, and is the result as good as the reference?

reframe -c examples/harnesses/aiperf_reframe.py -r -S config=/shared/aiperf.toml
reframe -c examples/harnesses/aiperf_reframe.py -r -n AiperfRun -S baseline=/shared/limits.toml

Written for ReFrame 4. AIPerf starts its own replicas (run.launcher), so that each test is one task
of ReFrame's. Verbs print JSON and say the rest by their exit code: 0 good, 4 a bad node or a limit
that is not met, anything else an error.
"""

import json
from pathlib import Path
from typing import Any

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import performance_function, run_after, run_before, sanity_function, variable

REJECTED = 4
"""Exit code of `aiperf screen` and `aiperf accept` for something that is not good."""


class AiperfTest(rfm.RunOnlyRegressionTest):  # type: ignore[misc]
    """The command and the configuration of the cluster, which both tests share."""

    valid_systems = ["*"]  # noqa: RUF012
    valid_prog_environs = ["*"]  # noqa: RUF012
    executable = "true"
    aiperf = variable(str, value="aiperf")
    config = variable(str, value="")
    """Configuration of AIPerf, a .toml file; empty: the defaults."""
    options = variable(str, value="")
    """More words for the verb, such as --launcher slurm --replicas 64."""

    def line(self, verb: str, words: str, output: str) -> str:
        """A line of the job script, which keeps the JSON and the exit code of a verb."""
        return f"{self.aiperf} {verb} {words} --format json > {output}.json; echo $? > {output}.code"

    def document(self, name: str) -> Any:
        """A JSON document in the stage directory."""
        return json.loads((Path(self.stagedir) / name).read_text())

    def code(self, name: str) -> int:
        """The exit code of a verb."""
        return int((Path(self.stagedir) / f"{name}.code").read_text())


@rfm.simple_test  # type: ignore[untyped-decorator]
class AiperfScreen(AiperfTest):
    """Measure every device of every node, and fail with the names of bad nodes."""

    descr = "AIPerf: which node is bad?"
    tags = {"aiperf", "maintenance"}  # noqa: RUF012
    keep_files = ["screened"]  # noqa: RUF012

    @run_before("run")  # type: ignore[untyped-decorator]
    def screen(self) -> None:
        """Write the job script."""
        self.prerun_cmds = [self.line("screen", f"{self.config} {self.options} --quick --output screened", "screen")]

    @sanity_function  # type: ignore[untyped-decorator]
    def every_node_is_good(self) -> Any:
        """Fail with the bad nodes and what was found."""
        code = self.code("screen")
        if code not in (0, REJECTED):
            return sn.assert_eq(code, 0, msg=f"aiperf screen ended with {code}: see {self.stderr}")
        found = self.document("screen.json")
        reasons = [f"{each['node']} {each['device']}: {each['measure']} {each['reason']}" for each in found["bad"]]
        reasons += [f"{each['name']}: {each['lost']}" for each in found["nodes"] if each["lost"]]
        return sn.assert_eq(code, 0, msg=f"bad nodes: {'; '.join(reasons)}")

    @run_after("sanity")  # type: ignore[untyped-decorator]
    def keep_the_lowest_of_each_measure(self) -> None:
        """Give ReFrame's own history the slowest device of each measure."""
        lowest: dict[str, float] = {}
        for node in self.document("screen.json")["nodes"]:
            for row in node["sheets"][-1]["rows"] if node["sheets"] else ():
                if row["value"] is not None:
                    lowest[row["measure"]] = min(row["value"], lowest.get(row["measure"], row["value"]))
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(value), "per_s") for name, value in lowest.items()
        }


@rfm.simple_test  # type: ignore[untyped-decorator]
class AiperfRun(AiperfTest):
    """Run, check the rules, and hold the result against a reference."""

    descr = "AIPerf: a timed run, checked and accepted"
    tags = {"aiperf", "production"}  # noqa: RUF012
    keep_files = ["run", "report.json", "check.json"]  # noqa: RUF012
    baseline = variable(str, value="")
    """Run directory, archive or file of limits that the run is held against; empty: none."""
    official = variable(bool, value=False)
    """True: a run that does not meet every rule fails."""

    @run_before("run")  # type: ignore[untyped-decorator]
    def run_check_and_accept(self) -> None:
        """Write the job script."""
        self.prerun_cmds = [
            self.line("run", f"{self.config} {self.options} --output run", "report"),
            self.line("check", "run", "check"),
        ]
        if self.baseline:
            self.prerun_cmds.append(self.line("accept", f"run --baseline {self.baseline} --junit accept.xml", "accept"))

    @sanity_function  # type: ignore[untyped-decorator]
    def it_has_a_score_and_is_accepted(self) -> Any:
        """Fail with the measures that are beyond their limits."""
        if code := self.code("report"):
            return sn.assert_eq(code, 0, msg=f"aiperf run ended with {code}: see {self.stderr}")
        verdict = self.document("check.json")["verdict"]
        found = [sn.assert_eq(self.code("check"), 0, msg=f"the run is {verdict}: see check.json")]
        if self.official:
            found.append(sn.assert_eq(verdict, "official", msg=f"the run is {verdict}: see check.json"))
        if self.baseline:
            code, reason = self.code("accept"), f"aiperf accept failed: see {self.stderr}"
            if code == REJECTED:
                missed = [each["measure"] for each in self.document("accept.json")["criteria"] if not each["accepted"]]
                reason = f"not accepted: {', '.join(missed)}"
            found.append(sn.assert_eq(code, 0, msg=reason))
        return sn.all(found)

    @performance_function("OPS")  # type: ignore[untyped-decorator]
    def score(self) -> float:
        """Give ReFrame's own history the score."""
        return float(self.document("report.json")["score_ops"])

    @performance_function("OPS")  # type: ignore[untyped-decorator]
    def regulated_score(self) -> float:
        """Give ReFrame's own history the regulated score."""
        return float(self.document("report.json")["regulated_score_ops"])
