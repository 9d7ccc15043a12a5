"""Nodes meet at one port: messages, wrong endpoints, and how a lost node is noticed."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from sfbench.common.errors import MeasureError, UsageError
from sfbench.launch import meeting as module
from sfbench.launch.meeting import Meeting, NodeLostError, endpoint


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def at(port: int, node: int, *, host: str = "127.0.0.1", timeout_s: float = 5.0) -> Meeting:
    return Meeting(text=f"{host}:{port}", nnodes=2, node_rank=node, timeout_s=timeout_s)


def soon(question: Callable[[], bool], limit_s: float = 20.0) -> bool:
    until_s = time.monotonic() + limit_s
    while not question():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOST_S", 1.0)
    monkeypatch.setattr(module, "_PULSE_S", 0.05)


def test_messages_go_both_ways_and_a_wait_may_be_given_up() -> None:
    port = free_port()
    with at(port, 0) as first, at(port, 1) as second:
        first.put("order/0", "go")
        second.put("end/0/1", "ok")

        assert second.wait("order/0") == b"go"
        assert first.wait("end/0/1") == b"ok"
        assert not first.has("end/0/2")
        second.put_first("failure", "one")
        first.put_first("failure", "other")
        assert second.get("failure") == b"one"
        assert first.wait("end/0/2", lambda: True) is None
        assert (second.address, second.reached) == ("127.0.0.1", "127.0.0.1")


def test_a_node_that_leaves_or_stands_still_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    with at(port, 0) as first:
        with at(port, 1) as second:
            first.expect(1)
            assert first.why_lost(1) is None
            second._stop.set()  # its pulse stands still, and nothing else happens

            assert soon(lambda: first.why_lost(1) is not None)
        assert first.why_lost(1) == "no sign of life for 1 s"
    with at(failing := free_port(), 0) as first:
        first.expect(1)
        with pytest.raises(UsageError), at(failing, 1):
            raise UsageError("no room\nmore")

        assert soon(lambda: first.why_lost(1) is not None)
        assert first.why_lost(1) == "it failed: no room"
    with at(free := free_port(), 0) as first:
        first.expect(1)
        with at(free, 1):
            pass

        assert soon(lambda: first.why_lost(1) is not None)
        assert first.why_lost(1) == "it ended"


def test_without_the_first_node_nobody_goes_on() -> None:
    port = free_port()
    with at(port, 0) as first, at(port, 1) as second:
        first._stop.set()
        first._server = None
        del first._store

        with pytest.raises(NodeLostError, match=f"first node .127.0.0.1:{port}. is lost"):
            second.wait("order/0")
        first._store = second._store  # for its own end


def test_a_number_that_is_taken_is_refused() -> None:
    port = free_port()
    with at(port, 0), at(port, 1), pytest.raises(UsageError, match="--node-rank 1 is taken"):
        at(port, 1).__enter__()


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.create_server(("", 0)) as server, pytest.raises(UsageError, match="another port"):
        at(server.getsockname()[1], 0).__enter__()


def test_what_is_no_store_is_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ANSWER_S", 1.0)
    ours, theirs = socket.socketpair()  # of another kind: these stay open
    with (
        ours,
        theirs,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        with pytest.raises(UsageError, match="something else than sfbench listens on port"):
            at(server.getsockname()[1], 1).__enter__()
        ours.sendall(b"x")
        assert theirs.recv(1) == b"x"


@pytest.mark.parametrize("node", [0, 1])
def test_a_name_that_does_not_resolve_is_refused(node: int) -> None:
    with pytest.raises(UsageError, match=r"the name no-such-host\.invalid cannot be resolved"):
        at(free_port(), node, host="no-such-host.invalid", timeout_s=0.1).__enter__()


def test_a_name_that_becomes_known_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    port, real, told = free_port(), socket.getaddrinfo, list[str]()
    answers = iter([socket.gaierror(-2, "not yet"), socket.gaierror(-3, "not yet")])

    def slow(*arguments: object, **named: object) -> object:
        for error in answers:
            raise error
        return real(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(module.socket, "getaddrinfo", slow)

    at(port, 1).look(told.append)

    assert len(told) == 1
    assert "cannot be resolved" in told[0]
    assert "--timeout" in told[0]


@pytest.mark.parametrize("host", ["node..local", ".local", "n" * 64 + ".local"])
def test_what_cannot_be_a_name_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be resolved on .* \(it is no host name\)"):
        at(free_port(), 1, host=host).__enter__()


def test_an_endpoint_of_another_machine_is_no_first_node(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing listens at 127.0.0.2 where the server is bound to another address.
    monkeypatch.setattr(module.socket, "create_connection", refuse)

    with pytest.raises(UsageError, match="does not lead to this machine"):
        at(free_port(), 0).__enter__()


def refuse(*_: object) -> socket.socket:
    raise ConnectionRefusedError


def test_a_first_node_that_does_not_come_is_told_within_the_time() -> None:
    port, began_s = free_port(), time.monotonic()

    with pytest.raises(MeasureError, match=f"port {port} could not be reached for 0.2 s"):
        at(port, 1, timeout_s=0.2).__enter__()
    assert time.monotonic() - began_s < 20


@pytest.mark.parametrize("text", [None, "", "node0", "node0:", ":29400", "node0:port"])
def test_what_is_no_host_and_port_is_refused(text: str | None) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        endpoint(text)
