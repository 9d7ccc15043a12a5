"""Functional collectives, which give new tensors: answered on the rank while ranks run apart.

``torch.distributed._functional_collectives`` talks by operators that no other hook sees.
torch.compile follows the stand-ins as it would follow torch's own functions: they break no graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed._functional_collectives as fcol
from torch.distributed import distributed_c10d as c10d

from sfbench.probe.hooks.taps import Taps

Tensors = Sequence[torch.Tensor]


def install(taps: Taps, apart: Any) -> None:
    """Patch them. ``apart.local``: whether ranks run apart just now."""
    for name, answer in ANSWERS.items():
        if hasattr(fcol, name):
            taps.wrap(fcol, name, _around(apart, answer), traced=True)


def _around(apart: Any, answer: Callable[..., Any]) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def collective(*args: Any, **kwargs: Any) -> Any:
            return answer(*args, **kwargs) if apart.local else original(*args, **kwargs)

        return collective

    return make


# The names of arguments are torch's: scripts may give them by name.


def _same(self: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    return self.clone()


def _same_each(self: Tensors, *rest: Any, **named: Any) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in self]


def _gathered(self: torch.Tensor, gather_dim: int, group: Any, tag: str = "") -> torch.Tensor:
    return torch.cat([self] * _size(group, tag), dim=gather_dim)


def _gathered_each(self: Tensors, group: Any, tag: str = "") -> list[torch.Tensor]:
    return [_gathered(tensor, 0, group, tag) for tensor in self]


def _scattered(
    self: torch.Tensor, reduceOp: str, scatter_dim: int, group: Any, tag: str = ""
) -> torch.Tensor:
    return self.narrow(scatter_dim, 0, self.shape[scatter_dim] // _size(group, tag)).clone()


def _scattered_each(
    inputs: Tensors, reduceOp: str, scatter_dim: Sequence[int], group: Any, tag: str = ""
) -> list[torch.Tensor]:
    return [
        _scattered(tensor, reduceOp, dim, group, tag)
        for tensor, dim in zip(inputs, scatter_dim, strict=True)
    ]


def _exchanged(
    self: torch.Tensor,
    output_split_sizes: Sequence[int] | None,
    input_split_sizes: Sequence[int] | None,
    group: Any,
    tag: str = "",
) -> torch.Tensor:
    have = self.shape[0]
    wanted = have if output_split_sizes is None else sum(output_split_sizes)
    if wanted <= have:
        return self[:wanted].clone()
    if have == 0:
        return self.new_zeros((wanted, *self.shape[1:]))
    return torch.cat([self] * -(-wanted // have))[:wanted]


def _size(group: Any, tag: str) -> int:
    if isinstance(group, str):
        return int(c10d._get_group_size_by_name(group))  # type: ignore[arg-type]
    return fcol._expand_group(group, tag)[2]


ANSWERS: dict[str, Callable[..., Any]] = {
    "all_reduce": _same,
    "broadcast": _same,
    "permute_tensor": _same,
    "all_reduce_coalesced": _same_each,
    "all_gather_single": _gathered,
    "all_gather_tensor": _gathered,
    "all_gather_single_coalesced": _gathered_each,
    "all_gather_into_tensor_coalesced": _gathered_each,
    "reduce_scatter_single": _scattered,
    "reduce_scatter_tensor": _scattered,
    "reduce_scatter_single_coalesced": _scattered_each,
    "reduce_scatter_tensor_coalesced": _scattered_each,
    "all_to_all_single": _exchanged,
    **dict.fromkeys(("all_gather_single_autograd", "all_gather_tensor_autograd"), _gathered),
    **dict.fromkeys(
        ("reduce_scatter_single_autograd", "reduce_scatter_tensor_autograd"), _scattered
    ),
    "all_to_all_single_autograd": _exchanged,
}
"""Of several versions of torch: what one of them lacks is passed over."""
