"""Hosts on one machine: a network namespace each, on one bridge. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

BRIDGE = "sfbench0"
PORT = 29500
ENDS_S = 240.0
"""Nothing that a test starts may take longer."""


def missing() -> str:
    """Why there can be no such hosts here; empty: there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [name for name in ("ip", "tc", "unshare") if shutil.which(name) is None]
    if absent:
        return f"needs {' and '.join(absent)} (Debian: iproute2, util-linux)"
    tried = subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"no network namespaces: {tried.stderr.strip()}"


def ip(*words: str) -> None:
    """Run ``ip``; what it refuses is an error."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@dataclass(frozen=True, slots=True)
class Host:
    """One of the hosts."""

    number: int
    """From 0."""

    @property
    def name(self) -> str:
        """Of the host and of its namespace; no resolver knows it."""
        return f"sfbench-{self.number}"

    @property
    def address(self) -> str:
        """On the bridge."""
        return f"10.77.0.{self.number + 1}"

    @property
    def plug(self) -> str:
        """The end of its cable at the bridge."""
        return f"sfb{self.number}"

    def throttle(self, megabits: int) -> None:
        """Set the rate of its link, both ways."""
        shaped = f"root tbf rate {megabits}mbit burst 32kb latency 200ms".split()
        tc = ["tc", "qdisc", "add", "dev"]
        inside = ["ip", "netns", "exec", self.name]
        for command in ([*tc, self.plug, *shaped], [*inside, *tc, "eth0", *shaped]):
            subprocess.run(command, check=True, capture_output=True, text=True)

    def cut(self) -> None:
        """Pull its cable."""
        ip("link", "set", self.plug, "down")

    def processes(self) -> list[str]:
        """What runs there."""
        found = subprocess.run(
            ["ip", "netns", "pids", self.name], check=True, capture_output=True, text=True
        )
        return found.stdout.split()


@contextmanager
def network(count: int) -> Iterator[list[Host]]:
    """So many hosts on one bridge; all is gone in the end."""
    hosts = [Host(number) for number in range(count)]
    _clear(hosts)
    with ExitStack() as stack:
        ip("link", "add", BRIDGE, "type", "bridge")
        stack.callback(ip, "link", "del", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for host in hosts:
            ip("netns", "add", host.name)
            stack.callback(ip, "netns", "del", host.name)
            ip("link", "add", host.plug, "type", "veth", "peer", "name", "eth0", "netns", host.name)
            # At once: with its namespace alone it would go some time later.
            stack.callback(ip, "link", "del", host.plug)
            ip("link", "set", host.plug, "master", BRIDGE, "up")
            ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
            ip("-n", host.name, "link", "set", "eth0", "up")
            ip("-n", host.name, "link", "set", "lo", "up")
        yield hosts


def _clear(hosts: list[Host]) -> None:
    """Remove what a run that was killed left."""
    left = [["link", "del", BRIDGE]]
    for host in hosts:
        left += [["link", "del", host.plug], ["netns", "del", host.name]]
    for words in left:
        subprocess.run(["ip", *words], check=False, capture_output=True)


@dataclass(frozen=True, slots=True)
class Command:
    """A sweep on one of the hosts."""

    process: subprocess.Popen[str]
    errors: Path

    def ended(self) -> tuple[int, str]:
        """Wait for it: exit code and stdout."""
        out, _ = self.process.communicate(timeout=ENDS_S)
        return self.process.returncode, out

    @property
    def told(self) -> str:
        """Its stderr up to now."""
        return self.errors.read_text()


@contextmanager
def sweeps(
    hosts: list[Host], folder: Path, *words: str, last: tuple[str, ...] = ()
) -> Iterator[list[Command]]:
    """The same command on every host, in a folder each; ``last``: more options of the last one."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                _sweep(
                    host, hosts, folder / host.name, [*words, *(last if host is hosts[-1] else ())]
                )
            )
            for host in hosts
        ]


@contextmanager
def _sweep(host: Host, hosts: list[Host], folder: Path, words: list[str]) -> Iterator[Command]:
    temporary = folder / "t"
    temporary.mkdir(parents=True)
    command = [
        sys.executable, "-m", "sfbench", "sweep", "--no-report", "--json",
        f"--nnodes={len(hosts)}", f"--node-rank={host.number}",
        f"--rdzv-endpoint={hosts[0].address}:{PORT}", *words,
    ]  # fmt: skip
    named = ["unshare", "-u", "sh", "-c", f'hostname {host.name}; exec "$@"', "-", *command]
    environment = {**os.environ, "TMPDIR": str(temporary), "GLOO_SOCKET_IFNAME": "eth0"}
    errors = folder / "err"
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            ["ip", "netns", "exec", host.name, *named],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        yield Command(process, errors)
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    print(missing())
