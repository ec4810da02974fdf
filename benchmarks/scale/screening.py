"""A screening of 512 nodes that exist in one process: coordination, page, and its opening."""

import time
from pathlib import Path

from analysis.verbs.screening import screening_page
from tests.support.browser import DESKTOP, open_page, show
from tests.support.nodes.screened import screened

NODES = 512
LIMIT_S = 600.0


def measure(scratch: Path) -> dict[str, float]:
    """CPU seconds of three passes with network and storage, and of the page; seconds to open it."""
    slow = {1: {("gpu5", "matmul_16"): 0.7}, NODES - 1: {("gpu0", "triad"): 0.86}}
    began = time.process_time()
    outcome = screened(scratch, NODES, slow, fabric=True, slow_storage={2: 0.5}, limit_s=LIMIT_S)
    coordinated = time.process_time()
    assert outcome.bad_nodes == ("n001", "n002", f"n{NODES - 1}"), outcome.bad_nodes
    page = scratch / "screen.html"
    page.write_text(screening_page(outcome))
    written = time.process_time()
    with open_page("about:blank", DESKTOP) as browser:
        opened = time.perf_counter()
        show(browser, page, DESKTOP, False)
        opening_s = time.perf_counter() - opened
    return {
        "screen_cpu_s_512": coordinated - began,
        "screen_page_cpu_s_512": written - coordinated,
        "screen_page_opens_s_512": opening_s,
    }
