"""Describes a node as one line of JSON; needs nothing but Python 3.6 or later.

It is sent over ssh and read from standard input, so that nothing has to be installed first.
Arguments: the shared directory and the directory of the data set; each may be empty.
"""

import json
import os
import platform
import socket
import subprocess
import sys
import time


def _read(path):
    try:
        with open(path) as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError):
        return ""


def _run(*words):
    code, output, _ = _ask(*words)
    return output if code == 0 else ""


def _ask(*words):
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(os.environ, LC_ALL="C"),
            timeout=20,
            check=False,
        )
    except OSError:
        return None, "", ""
    except subprocess.TimeoutExpired:
        return None, "", "no answer within 20 s"
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def _cpu():
    # Arm's /proc/cpuinfo has neither "physical id" nor "core id": each block is then a core.
    blocks = [
        dict(p.split(":", 1) for p in b.splitlines() if ":" in p) for b in _read("/proc/cpuinfo").split("\n\n") if b
    ]
    facts = [{k.strip(): v.strip() for k, v in block.items()} for block in blocks]
    sockets = {f.get("physical id", "0") for f in facts} or {"0"}
    cores = {(f.get("physical id", "0"), f.get("core id", str(n))) for n, f in enumerate(facts)} or {("0", "0")}
    count = os.cpu_count() or 1
    return {
        "cpu_model": next((f["model name"] for f in facts if "model name" in f), platform.machine()),
        "cpu_count": count,
        "sockets": len(sockets),
        "cores_per_socket": max(1, len(cores) // len(sockets)),
        "threads_per_core": max(1, count // len(cores)),
    }


def _memory():
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return None


def _accelerators():
    """List the cards of nvidia-smi, and its complaints; a card that it cannot read is one."""
    query = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
    code, shown, errors = _ask(*query)
    found, complaints = [], []
    for line in shown.splitlines():
        # From the right: the name of a card may have commas.
        row = [word.strip() for word in line.rsplit(",", 2)]
        if len(row) == 3 and row[0] and not row[0].startswith("["):
            found.append({"name": row[0][:200], "memory_bytes": _bytes(row[1]), "driver": row[2][:200]})
        elif line.strip():
            complaints.append(line.strip())
    complaints += [line.strip() for line in errors.splitlines() if line.strip()]
    if code and not complaints:
        complaints.append("exit code %d" % code)
    # They are printed on the user's terminal, which must not get control sequences from a node.
    return found, ["nvidia-smi: %s" % "".join(c for c in text if c.isprintable())[:300] for text in complaints[:20]]


def _bytes(mebibytes):
    """Convert MiB to bytes; None for "[N/A]" and for texts that cannot be a size."""
    try:
        size = float(mebibytes)
    except ValueError:
        return None
    return int(size) * 2**20 if 0 < size < 2**30 else None


def _network():
    found = {}
    root = "/sys/class/net"
    for name in sorted(os.listdir(root)) if os.path.isdir(root) else []:
        if name == "lo" or _read(os.path.join(root, name, "operstate")).strip() == "down":
            continue
        speed = _read(os.path.join(root, name, "speed")).strip()
        found[name] = int(speed) if speed.lstrip("-").isdigit() and int(speed) > 0 else None
    infiniband = "/sys/class/infiniband"
    for name in sorted(os.listdir(infiniband)) if os.path.isdir(infiniband) else []:
        found[name] = (_read(os.path.join(infiniband, name, "ports/1/rate")).split("(")[0].strip()) or None
    return found


def _packages():
    try:
        from importlib import metadata
    except ImportError:
        return {}
    found = {}
    for name in ("aiperf-hpc", "tensorflow", "tensorflow-cpu", "jax", "torch", "keras", "horovod", "numpy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def _shared(folder):
    if not folder:
        return None
    if not os.path.isdir(folder):
        return "missing"
    # All nodes probe one folder at the same time.
    probe = os.path.join(folder, ".aiperf-probe-%s-%d" % (socket.gethostname(), os.getpid()))
    try:
        with open(probe, "w") as stream:
            stream.write("probe")
        os.remove(probe)
    except OSError as error:
        return "not writable: %s" % error.strerror
    return "writable"


def _data(folder):
    if not folder:
        return None
    return "present" if os.path.isfile(os.path.join(folder, "dataset.json")) else "missing"


def main():
    accelerators, complaints = _accelerators()
    facts = {
        "host": socket.gethostname(),
        "os": platform.platform(),
        "memory_bytes": _memory(),
        "accelerators": accelerators,
        "complaints": complaints,
        "network": _network(),
        "python": platform.python_version(),
        "packages": _packages(),
        "slurm": _run("slurmd", "-V").strip() or None,
        "mpi": (_run("mpirun", "--version").splitlines() or [None])[0],
        "shared": _shared(sys.argv[1] if len(sys.argv) > 1 else ""),
        "data": _data(sys.argv[2] if len(sys.argv) > 2 else ""),
    }
    facts.update(_cpu())
    # Last, because the programs above take seconds.
    facts["utc_ms"] = int(time.time() * 1000)
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
