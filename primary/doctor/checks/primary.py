"""The machine that this command runs on, which would be the primary's."""

import os
from urllib.request import getproxies_environment, proxy_bypass

from primary import preflight
from primary.allocations import passed_over
from primary.allocations.time_left import early_end
from primary.doctor.contract import Evidence, Finding
from primary.nodes.ssh_client import client_name

_SETTINGS = "aiperf config show (with the same options)"

_LIMIT = "LimitNOFILE= of the unit, nofile in /etc/security/limits.conf, docker run --ulimit nofile=65536"

_BY_LAUNCHER = {
    "ssh": "--set ssh.hosts=[...], or fewer --replicas",
    "scheduler": "aiperf nodes list (in the job's own script or shell)",
}
"""Advice if a launcher cannot work with the settings; the problem names the setting."""


def check_primary(evidence: Evidence) -> list[Finding]:
    """Launcher, packages, ports, open files, and the place of the run directory."""
    config = evidence.config
    taken = "--set nni.port=PORT"
    found = [
        *(
            Finding("primary", "failed", text, _BY_LAUNCHER.get(config.run.launcher, _SETTINGS))
            for text in evidence.launcher_problems
        ),
        *(
            Finding("primary", "failed", text, "--output DIR (a new or empty one)")
            for text in preflight.output_problems(evidence.output, config.search.space is not None)
        ),
        *(
            Finding("primary", "failed", text, text[text.index("pip install") :])
            for text in preflight.package_problems(config)
        ),
        *(Finding("primary", "failed", text, taken) for text in preflight.port_problems(config)),
        *(Finding("primary", "failed", text, _LIMIT) for text in preflight.limit_problems(config)),
    ]
    if not found and (early := early_end(config)):
        return [Finding("primary", "warning", early, "--duration, or a longer job")]
    client = f" (ssh client {client_name(config.ssh)})" if not found and config.run.launcher == "ssh" else ""
    well = f"launcher {config.run.launcher}{client}, manager {config.run.manager}, run directory {evidence.output}"
    if config.run.manager == "nni" and getproxies_environment() and not proxy_bypass("localhost"):
        well += "; NNI, which is on this machine, is asked without the proxy of the environment"
    if jobs := passed_over(os.environ):
        well += f"; variables of other jobs are passed over: {'; '.join(jobs)}"
    return found or [Finding("primary", "ok", well)]
