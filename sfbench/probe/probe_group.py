"""The probe's own gloo group: how ranks agree at block borders.

It stands beside the script's process groups, on the launcher's store, so it works whatever backend
the script chose, and also if it started none. Waiting in it blocks; it does not spin.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from sfbench.probe.stop import Refused
from sfbench.protocol.records import NODE_ADDRESS

# Ranks wait here for as long as another one validates or runs its solo turn; the launcher is the
# one that decides when no progress means a hang.
_TIMEOUT = timedelta(hours=24)


_NO_WAY = (
    "connectFullMesh",
    "Connection refused",
    "No route to host",
    "Network is unreachable",
    "Unable to find address",
    "unable to resolve hostname",
)


class Control:
    """A group of all ranks of a launch; with one rank nothing is sent."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size
        self._group: Any = None

    def broadcast(self, values: Sequence[int], source: int = 0) -> list[int]:
        """The values that ``source`` gave; the others give as many of any kind."""
        if self.world_size == 1:
            return list(values)
        tensor = torch.tensor(list(values), dtype=torch.int64)
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = source, 0
        self._connected().broadcast([tensor], options).wait()
        return [int(v) for v in tensor.tolist()]

    def all_gather(self, value: Any) -> list[Any]:
        """What every rank gave, by rank."""
        if self.world_size == 1:
            return [value]
        sent, sizes = self._packed(value)
        received = [torch.empty_like(sent) for _ in range(self.world_size)]
        self._connected().allgather([received], [sent]).wait()
        return [_unpack(t, n) for t, n in zip(received, sizes, strict=True)]

    def gather(self, value: Any) -> list[Any] | None:
        """What every rank gave, by rank, on rank 0; None on the others."""
        if self.world_size == 1:
            return [value]
        sent, sizes = self._packed(value)
        options = dist.GatherOptions()
        options.rootRank = 0
        received = [torch.empty_like(sent) for _ in range(self.world_size)]
        outputs = [received] if self.rank == 0 else []
        self._connected().gather(outputs, [sent], options).wait()
        if self.rank != 0:
            return None
        return [_unpack(t, n) for t, n in zip(received, sizes, strict=True)]

    def _packed(self, value: Any) -> tuple[torch.Tensor, list[int]]:
        """The value as bytes, padded to the longest of all ranks, and every rank's length."""
        data = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        mine = torch.tensor([data.numel()], dtype=torch.int64)
        sizes = [torch.empty_like(mine) for _ in range(self.world_size)]
        self._connected().allgather([sizes], [mine]).wait()
        lengths = [int(s.item()) for s in sizes]
        padded = torch.zeros(max(lengths), dtype=torch.uint8)
        padded[: data.numel()] = data
        return padded, lengths

    def _connected(self) -> Any:
        if self._group is None:
            host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            store = TCPStore(host, port, is_master=False, timeout=timedelta(minutes=5))
            run = os.environ.get("TORCHELASTIC_RUN_ID", "run")
            attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            prefixed = PrefixStore(f"sfbench/{run}/{attempt}", store)
            self._group = _gloo(prefixed, self.rank, self.world_size)
        return self._group


def no_way(message: str) -> str:
    """What to do where a failure says that ranks of several nodes did not reach each other."""
    if NODE_ADDRESS not in os.environ or not any(words in message for words in _NO_WAY):
        return ""
    return (
        " (Ranks of the nodes do not reach each other by the interface that the host's name leads "
        f"to: name the right one, that of {os.environ[NODE_ADDRESS]} here, in GLOO_SOCKET_IFNAME, "
        "or NCCL_SOCKET_IFNAME for NCCL, on each node.)"
    )


def _gloo(store: Any, rank: int, world_size: int) -> Any:
    """Between nodes by the interface that leads to the endpoint: gloo would guess it by name."""
    address = os.environ.get(NODE_ADDRESS)
    if address is None:
        return dist.ProcessGroupGloo(store, rank, world_size, _TIMEOUT)
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._timeout = _TIMEOUT
    try:
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
        return dist.ProcessGroupGloo(store, rank, world_size, options)
    except RuntimeError as error:
        why = str(error).splitlines()[0]
        raise Refused(
            "nodes",
            f"The ranks of this node ({address}) cannot reach those of the other nodes: {why}. Let "
            "all ports pass between the nodes (GLOO_SOCKET_IFNAME names another interface for the "
            "script's own group only).",
        ) from error


def _unpack(data: torch.Tensor, length: int) -> Any:
    return pickle.loads(data[:length].numpy().tobytes())
