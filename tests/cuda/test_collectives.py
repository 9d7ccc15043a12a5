"""What torch's own modules and scripts call while ranks run apart is answered on the rank."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fcol
from torch.distributed import distributed_c10d as c10d

from sfbench.probe.hooks import functional
from sfbench.probe.hooks.collectives import (
    _PAIRWISE_METHODS,
    COLLECTIVES,
    GROUP_METHODS,
    PAIRWISE,
    CollectiveHooks,
)
from sfbench.probe.hooks.taps import Taps
from sfbench.probe.replaying.meetings import meetings

TORCH = Path(torch.__file__).parent
MODULES = (
    "nn/modules", "nn/parallel", "nn/utils", "optim", "distributed/optim", "distributed/nn",
    "distributed/algorithms", "distributed/utils.py",
)  # fmt: skip
NAMES_OF_DIST = {"dist", "torch.distributed", "distributed_c10d", "c10d", "dist.distributed_c10d"}

# These take a group and send nothing, or are not part of a step.
NO_MEETING = {
    "destroy_process_group", "get_backend", "get_backend_config", "get_global_rank",
    "get_group_rank", "get_process_group_ranks", "get_rank", "get_world_size", "new_subgroups",
    "shrink_group",
}  # fmt: skip
BY_GROUP_METHODS = {"send_object_list", "recv_object_list"}
"""Made of send and recv."""


def takes_a_group(function: Any) -> bool:
    parameters = inspect.signature(function).parameters
    return "group" in parameters or "p2p_op_list" in parameters


def public_and_base_functions() -> set[str]:
    functions = {
        name: value
        for name, value in vars(c10d).items()
        if inspect.isfunction(value) and value.__module__ == c10d.__name__
    }
    wanted = {n for n in functions if not n.startswith("_") or n.endswith("_base")}
    return {name for name in wanted if takes_a_group(functions[name])}


def test_every_function_of_torch_in_which_ranks_meet_is_known() -> None:
    unknown = public_and_base_functions() - set(COLLECTIVES) - set(PAIRWISE)
    assert unknown == NO_MEETING | BY_GROUP_METHODS


@functools.cache
def sources() -> tuple[ast.Module, ...]:
    """Torch's own modules, read once."""
    places = [TORCH / place for place in MODULES]
    files = [[p] if p.is_file() else sorted(p.rglob("*.py")) for p in places]
    return tuple(ast.parse(path.read_text()) for path in itertools.chain(*files))


def called_by(source: ast.Module) -> set[str]:
    """Functions of torch.distributed that a source calls through the module."""
    return {
        node.func.attr
        for node in ast.walk(source)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) in NAMES_OF_DIST
    }


def test_what_modules_of_torch_call_is_answered() -> None:
    # GIVEN what torch's own modules call, as this version of torch is written
    talk = {name for name, value in vars(c10d).items() if inspect.isfunction(value)}
    called = {name for source in sources() for name in called_by(source) & talk}
    called = {name for name in called if takes_a_group(getattr(c10d, name))}
    # THEN
    private = {name for name in called if name.startswith("_") and not name.endswith("_base")}
    assert private <= {"_rank_not_in_group", "_get_process_group_name"}
    assert called - private <= set(COLLECTIVES) | set(PAIRWISE) | NO_MEETING
    assert {"all_reduce", "all_gather", "broadcast"} <= called  # or nothing was read


def test_no_module_of_torch_takes_a_collective_out_of_reach() -> None:
    taken = {
        alias.name
        for source in sources()
        for node in source.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.distributed")
        for alias in node.names
    }
    assert taken & (set(COLLECTIVES) | set(PAIRWISE)) == set()


@pytest.fixture
def apart() -> Iterator[None]:
    taps, hooks = Taps(), CollectiveHooks()
    hooks.install(taps)
    hooks.run_apart(True)
    yield
    taps.restore()


X = torch.arange(4.0)


@pytest.mark.parametrize(
    "name", ["all_gather_single", "all_gather_into_tensor", "_all_gather_base"]
)
@pytest.mark.usefixtures("apart")
def test_a_gathered_tensor_is_the_ranks_own_everywhere(name: str) -> None:
    out = torch.zeros(1, 8)
    # THEN it needs no group, and answers
    assert getattr(dist, name)(input_tensor=X, output_tensor=out) is None
    assert torch.equal(out, torch.cat([X, X]).reshape(1, 8))
    work = getattr(dist, name)(out, X, None, async_op=True)
    assert work.wait()


@pytest.mark.parametrize(
    "name", ["reduce_scatter_single", "reduce_scatter_tensor", "_reduce_scatter_base"]
)
@pytest.mark.usefixtures("apart")
def test_a_scattered_sum_is_a_part_of_the_ranks_own(name: str) -> None:
    out = torch.zeros(2)
    getattr(dist, name)(out, X)
    assert torch.equal(out, X[:2])


@pytest.mark.usefixtures("apart")
def test_lists_are_answered_place_by_place() -> None:
    gathered, parts = [torch.zeros(4), torch.zeros(4)], [torch.zeros(2), torch.zeros(2)]
    nested = [[torch.zeros(4), torch.zeros(4)]]
    dist.all_gather(tensor=X, tensor_list=gathered)
    dist.all_to_all(parts, [X[:2], X[2:]])
    dist.all_gather_coalesced(nested, [X])
    dist.all_reduce_coalesced([X])
    one = torch.zeros(2)
    dist.reduce_scatter(one, [X[2:], X[:2]])
    assert all(torch.equal(t, X) for t in (*gathered, *nested[0]))
    assert torch.equal(torch.cat(parts), X)
    assert torch.equal(one, X[2:])


@pytest.mark.usefixtures("apart")
def test_roots_and_the_others_are_answered() -> None:
    gathered, one = [torch.zeros(4), torch.zeros(4)], torch.zeros(2)
    dist.gather(X, gathered)
    dist.gather(X, None, dst=1)
    dist.scatter(one, [X[2:], X[:2]])
    assert torch.equal(gathered[1], X)
    assert torch.equal(one, X[2:])


@pytest.mark.usefixtures("apart")
def test_objects_are_answered_whole() -> None:
    everywhere: list[Any] = [None, None]
    dist.all_gather_object(everywhere, [1, 2])
    assert everywhere == [[1, 2], [1, 2]]
    at_root: list[Any] = [None, None]
    dist.gather_object({"a": X}, at_root)
    assert at_root[1]["a"] is X
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, ["first", "second"])
    assert mine == ["first"]


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.usefixtures("apart")
def test_a_function_is_answered_by_both_of_its_names(name: str) -> None:
    for owner in (dist, c10d):
        if hasattr(owner, name):
            assert getattr(owner, name) is not inspect.unwrap(getattr(owner, name)), owner


@pytest.mark.usefixtures("apart")
def test_what_is_called_where_it_is_defined_needs_no_group() -> None:
    c10d.all_reduce(X)
    out = torch.zeros(8)
    c10d.all_gather_single(out, X)
    assert torch.equal(out, torch.cat([X, X]))


def test_one_that_is_made_of_others_counts_once() -> None:
    taps, hooks = Taps(), CollectiveHooks()
    hooks.install(taps)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        dist.all_gather_object([None], "value")
        c10d.all_reduce(X.clone())
        assert {one.name for one in hooks.per_step(1)} == {"all_gather_object", "all_reduce"}
        assert hooks.bytes_sent == 16
    finally:
        dist.destroy_process_group()
        taps.restore()


# Of a group: how it is made, what it is called, how it is ended.
NOT_A_MEETING = {
    "BackendType", "CUSTOM", "GLOO", "MPI", "NCCL", "UCC", "UNDEFINED", "XCCL", "abort",
    "bound_device_id", "boxed", "get_group_store", "group_desc", "group_name", "name", "rank",
    "merge_remote_group", "set_timeout", "shutdown", "size", "split_group", "unbox",
    "use_pg_for_symm_mem_rendezvous",
}  # fmt: skip


def test_every_method_of_a_group_in_which_ranks_meet_is_known() -> None:
    methods = {name for name in vars(dist.ProcessGroup) if not name.startswith("_")}
    assert methods - NOT_A_MEETING <= {*GROUP_METHODS, *_PAIRWISE_METHODS}
    bases = {name for name in vars(dist.ProcessGroup) if name.endswith("_base")}
    assert bases <= set(GROUP_METHODS)


GROUP: Any = object()
"""Nobody asks it anything."""


@pytest.mark.usefixtures("apart")
def test_methods_of_a_group_are_answered() -> None:
    group = dist.ProcessGroup
    nested, one, both = [[torch.zeros(4), torch.zeros(4)]], torch.zeros(2), torch.zeros(8)
    assert group.allreduce(GROUP, [X]).wait()
    assert group.barrier(GROUP).wait()
    group.allgather(GROUP, nested, [X])
    group._allgather_base(GROUP, both, X)
    assert all(torch.equal(t, X) for t in nested[0])
    assert torch.equal(both, torch.cat([X, X]))
    group.scatter(GROUP, [one], [[X[2:], X[:2]]])
    assert torch.equal(one, X[2:])
    group.scatter(GROUP, [one], [])  # another rank gives
    group.gather(GROUP, [], [X])
    group.alltoall_base(GROUP, both[:4], X, [], [])
    assert torch.equal(both[:4], X)


def test_every_functional_collective_is_known() -> None:
    functions = {
        name
        for name, value in vars(fcol).items()
        if inspect.isfunction(value) and value.__module__ == fcol.__name__ and takes_a_group(value)
    }
    made_of_others = {name for name in functions if name.endswith("_inplace")}
    private = {name for name in functions if name.startswith("_")}
    assert functions - made_of_others - private <= set(functional.ANSWERS)
    assert "all_reduce" in functions


TWO = [0, 1]
"""Ranks of a group that nobody has started."""


@pytest.mark.usefixtures("apart")
def test_functional_collectives_are_answered() -> None:
    both, x = torch.cat([X, X]), X.clone().requires_grad_()
    assert torch.equal(fcol.all_reduce(X, "sum", TWO), X)
    assert torch.equal(fcol.all_gather_single(x, gather_dim=0, group=TWO), both)
    assert torch.equal(fcol.reduce_scatter_single(X, "sum", 0, TWO), X[:2])
    assert torch.equal(fcol.all_to_all_single(X, [3, 3], [2, 2], TWO), both[:6])
    assert torch.equal(fcol.permute_tensor(X, [1, 0], TWO), X)
    assert torch.equal(fcol.all_reduce_coalesced([X], "sum", TWO)[0], X)
    assert torch.equal(fcol.all_gather_single_coalesced([X], TWO)[0], both)
    assert torch.equal(fcol.reduce_scatter_single_coalesced([X], "sum", [0], TWO)[0], X[:2])
    # AND gradients flow
    fcol.all_gather_tensor(x, 0, TWO).sum().backward()
    assert torch.equal(x.grad, torch.full((4,), 2.0))


def watched(original: Any) -> Any:
    def collective(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    return collective


def test_a_compiled_graph_is_not_broken() -> None:
    # GIVEN two stand-ins around each other
    taps, hooks = Taps(), CollectiveHooks()
    before_all = set(fcol.traceable_collective_remaps)
    hooks.install(taps)
    taps.wrap(dist, "all_reduce", watched)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    group = dist.group.WORLD

    @torch.compile(backend="eager", fullgraph=True)
    def by_function(x: torch.Tensor) -> torch.Tensor:
        return fcol.all_reduce(2 * x, "sum", group) + 1

    @torch.compile(backend="eager", fullgraph=True)
    def in_place(x: torch.Tensor) -> torch.Tensor:
        y = 2 * x
        dist.all_reduce(y)
        return y + 1

    try:
        for reduced in (by_function, in_place):
            for local, reached in ((False, 1), (True, 0), (False, 1)):
                before, hooks.local = meetings(), local
                # WHEN / THEN it is compiled whole, and answered on the rank as well
                assert torch.equal(reduced(X), 2 * X + 1)
                assert meetings() - before == reached
    finally:
        dist.destroy_process_group()
        taps.restore()
        torch._dynamo.reset()
    # AND torch is left as it was
    assert set(fcol.traceable_collective_remaps) == before_all
