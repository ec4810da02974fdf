"""Requests to this machine, on sites whose environment names a proxy."""

from urllib.request import proxy_bypass

import pytest
from selenium.webdriver.remote.client_config import ClientConfig

from aiperf.machine.addresses import THIS_MACHINE
from tests.support.hand_made import free_port


def test_clients_of_tests_reach_this_machine_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment of `make test` has named: tests/conftest.py."""
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    assert all(map(proxy_bypass, THIS_MACHINE))
    assert ClientConfig("http://localhost:9515").get_proxy_url() is None
