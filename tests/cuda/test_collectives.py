"""What torch's own modules and scripts call while ranks run apart is answered on the rank."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from sfbench.probe.hooks.collectives import COLLECTIVES, PAIRWISE, CollectiveHooks
from sfbench.probe.hooks.taps import Taps

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


def sources() -> Iterator[Path]:
    for place in MODULES:
        path = TORCH / place
        yield from [path] if path.is_file() else sorted(path.rglob("*.py"))


def called_by(path: Path) -> set[str]:
    """Functions of torch.distributed that a source calls through the module."""
    return {
        node.func.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) in NAMES_OF_DIST
    }


def test_what_modules_of_torch_call_is_answered() -> None:
    # GIVEN what torch's own modules call, as this version of torch is written
    talk = {name for name, value in vars(c10d).items() if inspect.isfunction(value)}
    called = {name for path in sources() for name in called_by(path) & talk}
    called = {name for name in called if takes_a_group(getattr(c10d, name))}
    # THEN
    private = {name for name in called if name.startswith("_") and not name.endswith("_base")}
    assert private <= {"_rank_not_in_group", "_get_process_group_name"}
    assert called - private <= set(COLLECTIVES) | set(PAIRWISE) | NO_MEETING
    assert {"all_reduce", "all_gather", "broadcast"} <= called  # or nothing was read


def test_no_module_of_torch_takes_a_collective_out_of_reach() -> None:
    taken = {
        alias.name
        for path in sources()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.distributed")
        for alias in node.names
    }
    assert taken & (set(COLLECTIVES) | set(PAIRWISE)) == set()


@pytest.fixture
def apart() -> Iterator[None]:
    taps, hooks = Taps(), CollectiveHooks()
    hooks.install(taps)
    hooks.local = True
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
