"""The guard of NNI's portal by itself: whom it admits by the kernel's tables of connections."""

import json
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from primary.nni.portal import PRELOADED

PROGRAM = """
const fs = require('node:fs');
const http = require('node:http');
const [guard, tables, end] = process.argv.slice(1).map((word, number) => (number ? JSON.parse(word) : word));
const read = fs.readFileSync;
fs.readFileSync = (path, ...rest) => (String(path).startsWith('/proc/net/') ? tables[path] : read(path, ...rest));
require(guard);
const server = new http.Server();
let answer = 'nothing';
server.removeAllListeners('connection');
server.on('connection', () => { answer = 'admitted'; });
const socket = { ...end, on() {}, resume() {}, destroy() {}, end(text) { answer = text.split('\\r\\n')[0]; } };
server.emit('connection', socket);
console.log(answer);
"""
"""The guard in its program, with tables and a connection of the caller."""

ADMITTED, REFUSED = "admitted", "HTTP/1.1 403 Forbidden"

ME, OTHER = os.geteuid(), 65534

V4 = {"remoteAddress": "127.0.0.1", "remotePort": 40000, "localAddress": "127.0.0.1", "localPort": 8080}
V6 = {**V4, "remoteAddress": "::1", "localAddress": "::1"}
MAPPED = {**V4, "remoteAddress": "::ffff:127.0.0.1", "localAddress": "::ffff:127.0.0.1"}

LOOPBACK_4, LOOPBACK_6 = "0100007F", "0" * 24 + "01000000"
MAPPED_4 = "0" * 16 + "FFFF0000" + LOOPBACK_4


def row(address: str, user: int, inode: int, ports: str = "9C40 1F90") -> str:
    """A line of a table, as /proc/net/tcp has it (proc(5)); ports of 40000 and 8080."""
    near, far = ports.split()
    return (
        f"   0: {address}:{near} {address}:{far} 01 00000000:00000000 00:00000000 00000000 {user:5} 0 {inode} 1 "
        "0000000000000000 20 4 30 10 -1"
    )


CASES = {
    "the owner": (V4, [row(LOOPBACK_4, ME, 7)], [], ADMITTED),
    "another user": (V4, [row(LOOPBACK_4, OTHER, 7)], [], REFUSED),
    "a socket without a process, shown as the owner's": (V4, [row(LOOPBACK_4, ME, 0)], [], REFUSED),
    "a socket of IPv6 without a process": (V6, [], [row(LOOPBACK_6, ME, 0)], REFUSED),
    "no such connection": (V4, [row(LOOPBACK_4, ME, 7, "9C41 1F90")], [], REFUSED),
    "only the portal's own end": (V4, [row(LOOPBACK_4, ME, 7, "1F90 9C40")], [], REFUSED),
    "no tables": (V4, [], [], REFUSED),
    "the owner by IPv6": (V6, [], [row(LOOPBACK_6, ME, 7)], ADMITTED),
    "another user by IPv6": (V6, [], [row(LOOPBACK_6, OTHER, 7)], REFUSED),
    "the owner by IPv4 to a socket of IPv6": (MAPPED, [], [row(MAPPED_4, ME, 7)], ADMITTED),
    "a connection that has ended": ({}, [row(LOOPBACK_4, ME, 7)], [], REFUSED),
}


@pytest.mark.parametrize("case", CASES)
def test_the_kernel_s_tables_decide(case: str) -> None:
    end, four, six, expected = CASES[case]
    tables = {"/proc/net/tcp": "\n".join(["  sl  local_address", *four]), "/proc/net/tcp6": "\n".join(six)}
    spec = find_spec("nni_node")
    assert spec is not None
    assert spec.origin is not None
    node = Path(spec.origin).with_name("node")
    words = [str(node), "-e", PROGRAM, str(PRELOADED), json.dumps(tables), json.dumps(end)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == expected
