"""A Slurm of this machine alone: munged, slurmctld and one slurmd per node. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd", "srun")
STARTS_S = 30.0

CONFIGURATION = """
ClusterName=sfbench
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=17817
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=30
PartitionName=all Nodes=ALL Default=YES MaxTime=60 State=UP
"""
NODE = "NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=4\n"


def missing() -> str:
    """Why there can be no Slurm here; empty: there can."""
    if os.geteuid() != 0:
        return "Slurm's daemons need root"
    absent = [name for name in DAEMONS if shutil.which(name) is None]
    return f"needs {', '.join(absent)} (Debian: slurm-wlm, munge)" if absent else ""


@contextmanager
def slurm(folder: Path, names: list[str]) -> Iterator[dict[str, str]]:
    """Daemons that run while the context is open; gives the environment for ``srun``."""
    (folder / "state").mkdir(parents=True)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    nodes = "".join(NODE.format(name=n, port=17901 + i) for i, n in enumerate(names))
    (folder / "slurm.conf").write_text(nodes + CONFIGURATION.format(folder=folder))
    hosts = folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {' '.join(names)}\n")
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    with ExitStack() as stack:

        def start(*command: str) -> None:
            with (folder / "daemons.log").open("a") as log:
                daemon = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            stack.callback(_end, daemon)

        own = [f"--{name}={folder}/munge.{name}" for name in ("socket", "pid-file", "log-file")]
        own += [f"--key-file={key}", f"--seed-file={folder}/seed"]
        start("munged", "--foreground", "--force", *own)
        _wait((folder / "munge.socket").exists, folder)
        start("slurmctld", "-D")
        # The nodes' names resolve in their own view of the files alone.
        named = f'mount --bind {hosts} /etc/hosts && exec slurmd -D -N "$1"'
        for name in names:
            start("unshare", "-m", "sh", "-c", named, "-", name)
        _wait(lambda: _idle(environment) == len(names), folder)
        stack.callback(_clear, environment)
        yield environment


def _clear(environment: dict[str, str]) -> None:
    """No job of a test that was interrupted outlives the daemons."""
    subprocess.run(["scancel", "--user=root"], env=environment, check=False)
    until_s = time.monotonic() + STARTS_S
    while time.monotonic() < until_s and _jobs(environment):
        time.sleep(0.2)


def _jobs(environment: dict[str, str]) -> str:
    command = ["squeue", "--noheader"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def _idle(environment: dict[str, str]) -> int:
    command = ["sinfo", "--noheader", "--Node", "--states=idle"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return len(found.stdout.splitlines())


def _wait(ready: Callable[[], bool], folder: Path) -> None:
    until_s = time.monotonic() + STARTS_S
    while not ready():
        logs = "\n".join(path.read_text()[-2000:] for path in folder.glob("*.log"))
        assert time.monotonic() < until_s, logs
        time.sleep(0.2)


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(timeout=15)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


if __name__ == "__main__":
    print(missing())
