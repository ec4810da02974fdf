"""A scrape of `/metrics` from `aiperf dashboard` of a run of 512 replicas in progress."""

import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from statistics import median

from aiperf.clock import SystemClock
from aiperf.config.settings import load_config
from aiperf.run_directory.claim import Claim
from benchmarks.scale.status import REPLICAS, made_in_progress
from primary.display.snapshot import SnapshotDisplay

SCRAPES = 20


def measure(scratch: Path) -> dict[str, float]:
    """Median and longest milliseconds of a scrape; before each the run has moved on."""
    config = load_config(overrides={"run.replicas": REPLICAS, "run.duration": "12h"})
    paths, view = made_in_progress(scratch / "scrape", config)
    clock, took = SystemClock(), list[float]()
    with Claim.acquire(paths.claims, clock):
        display = SnapshotDisplay(paths, config, clock)
        display.refresh(view)
        program = [sys.executable, "-m", "aiperf", "dashboard", str(paths.root)]
        with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            try:
                assert process.stdout is not None
                address = process.stdout.readline().strip().replace("/?", "/metrics?")
                scrape(address)
                for _ in range(SCRAPES):
                    display.refresh(view)
                    took.append(scrape(address))
            finally:
                process.send_signal(signal.SIGTERM)
    return {"scrape_ms": median(took), "scrape_longest_ms": max(took)}


def scrape(address: str) -> float:
    """Milliseconds until the whole text is here; it must have every replica."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    began_s = time.perf_counter()
    with direct.open(address, timeout=60) as answer:
        text = answer.read().decode()
    took_s = time.perf_counter() - began_s
    if text.count("\naiperf_replica_operations{") != REPLICAS:
        raise SystemExit(f"a scrape lacks replicas: {text[:300]}")
    return 1000 * took_s
