"""Which devices a sweep runs on, and that it says so where it cannot."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from virtual import VirtualCuda
from virtual_job import Rank

from sfbench.common.errors import UsageError
from sfbench.common.schema import LADDER
from sfbench.launch.local import environment
from sfbench.plan import accelerators as module
from sfbench.plan.accelerators import Accelerators, Gpu, accelerators, torch_build, visible
from sfbench.plan.machine import Machine, this_machine
from sfbench.plan.options import Settings
from sfbench.plan.planner import make_plan
from sfbench.plan.sweep_plan import SweepPlan, Target
from sfbench.probe.device import asks_for_a_device, home_of, mismatch
from sfbench.probe.replaying.unavailable_rungs import unavailable_rungs
from sfbench.probe.stop import Refused

FOUR = [Gpu(name=f"H{i}", uuid=f"GPU-{word}") for i, word in enumerate(("ab1", "ab2", "c", "d"))]


@pytest.mark.parametrize(
    ("listed", "wanted"),
    [
        (None, (0, 1, 2, 3)),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("void", ()),
        ("none", ()),
        ("2", (2,)),
        ("3,1", (3, 1)),
        (" 1, 2 ", (1, 2)),
        ("1,-1,2", (1,)),
        ("0,,1", (0,)),
        ("0,9,1", (0,)),
        ("1,1", ()),
        ("0,1,0", ()),
        ("1gpu,2x", (1, 2)),
        ("+1,2", (1, 2)),
        ("0,GPU-c", (0,)),
        ("GPU-c", (2,)),
        ("GPU-d,GPU-ab1", (3, 0)),
        ("GPU-ab", ()),
        ("GPU-c,0", (2,)),
        ("GPU-c,GPU-c", ()),
        ("GPU-x,GPU-c", ()),
    ],
)
def test_visible_devices_are_read_as_the_driver_reads_them(
    listed: str | None, wanted: tuple[int, ...]
) -> None:
    assert visible(listed, FOUR) == wanted


def test_the_same_forms_are_read_as_torch_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN torch's own reading, where it has one
    torch_reads = torch.cuda._parse_visible_devices  # type: ignore[attr-defined]
    for listed in ("", "-1", "void", "NoDevFiles", "2", "3,1", " 1, 2 ", "1,-1,2", "0,,1", "1,1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
        assert list(visible(listed, FOUR)) == torch_reads(), listed


class NvmlError(Exception):
    """As pynvml's."""


def nvml(
    *, starts: bool = True, limits: bool = True, names: Sequence[str] = ("H200", "H200")
) -> Any:
    """GPUs as NVML tells of them."""

    def start() -> None:
        if not starts:
            raise NvmlError("Driver/library version mismatch")

    def limit(handle: int) -> int:
        if not limits:
            raise NvmlError("Not Supported")
        return 700_000

    return SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=start,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(names),
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetName=lambda handle: names[handle].encode(),
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}",
        nvmlDeviceGetEnforcedPowerLimit=limit,
        nvmlSystemGetDriverVersion=lambda: "570.1",
    )


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Pretend a build of torch, its driver's files, and what torch answers when it is asked."""

    def build(kind: str | None, *, driver: bool = True, answer: str = "", error: str = "") -> None:
        node = tmp_path / "node"
        if driver:
            node.touch()
        monkeypatch.setattr(module, "torch_build", lambda: kind)
        nodes = dict.fromkeys(("cuda", "rocm", "xpu"), (str(tmp_path / "none"),))
        monkeypatch.setattr(module, "_NODES", {**nodes, kind: (str(node),)})
        monkeypatch.setattr(module, "_CARDS", tmp_path / "drm")
        done = subprocess.CompletedProcess([], 1 if error else 0, answer, error)
        monkeypatch.setattr(module.subprocess, "run", lambda *a, **k: done)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    return build


def test_a_cuda_machine_is_told_by_nvml(built: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    built("cuda")
    assert accelerators() == Accelerators(
        names=("H200", "H200"), driver="570.1", power_limits_w=(700.0, 700.0)
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml(limits=False))
    assert accelerators() == Accelerators(names=("H200", "H200"), driver="570.1")


def test_gpus_of_several_kinds_are_named_in_the_order_of_cuda(
    built: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a slow GPU on the first place of the bus; CUDA counts the fast one first
    built("cuda", answer='["H200", "T4"]')
    monkeypatch.setitem(sys.modules, "pynvml", nvml(names=("T4", "H200")))
    found = accelerators()
    assert found.names == ("H200", "T4")
    assert found.note is not None
    assert "several kinds (1 H200, 1 T4)" in found.note
    # WHEN the order of the bus is asked for
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    found = accelerators()
    assert found.names == ("T4", "H200")
    assert found.power_limits_w == (700.0, 700.0)
    # AND where those that are visible are of one kind, there is nothing to say of it
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert accelerators().names == ("H200",)
    assert accelerators().note is None


def test_without_a_driver_there_is_no_gpu_and_nothing_to_say(built: Any) -> None:
    # GIVEN a CUDA build of torch, as a package registry gives it to everybody
    built("cuda", driver=False)
    assert accelerators() == Accelerators()
    built(None)
    assert accelerators() == Accelerators()


def test_a_failing_nvml_is_said_where_torch_cannot_use_the_gpus(
    built: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    built("cuda", error="RuntimeError: CUDA error 803")
    monkeypatch.setitem(sys.modules, "pynvml", nvml(starts=False))
    found = accelerators()
    assert (found.names, found.kind) == ((), "cuda")
    assert "version mismatch" in str(found.problem)
    assert "CUDA error 803" in str(found.problem)


def test_a_failing_nvml_is_no_hindrance_where_torch_can(
    built: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    built("cuda", answer='["Orin"]\n')
    monkeypatch.setitem(sys.modules, "pynvml", nvml(starts=False))
    found = accelerators()
    assert (found.names, found.problem) == (("Orin",), None)
    assert "power limit and throttling of these GPUs are not known" in str(found.note)
    assert "version mismatch" in str(found.note)


def test_parts_of_a_gpu_are_told_by_torch(built: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    built("cuda", answer='["H200 MIG 1g"]')
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
    found = accelerators()
    assert (found.names, found.problem, found.driver) == (("H200 MIG 1g",), None, "570.1")
    assert "names MIG devices" in str(found.note)


@pytest.mark.parametrize(("build", "kind"), [("rocm", "cuda"), ("xpu", "xpu")])
def test_other_vendors_are_one_path_or_said(built: Any, build: str, kind: str) -> None:
    built(build, answer='["MI300X", "MI300X"]\n')
    found = accelerators()
    assert (found.names, found.kind, found.problem) == (("MI300X", "MI300X"), kind, None)
    assert f"NVIDIA GPUs only, and torch is built for {build}" in str(found.note)
    built(build, error="no permission for the device")
    assert "no permission" in str(accelerators().problem)


@pytest.mark.parametrize(
    ("build", "driver", "told"),
    [
        ("cuda", "rocm", "driver of AMD GPUs"),  # what `pip install torch` brings there
        (None, "cuda", "driver of NVIDIA GPUs"),
        ("rocm", "cuda", "torch is built for AMD GPUs"),
        (None, "rocm", "torch is built for the processor alone"),
    ],
)
def test_gpus_of_another_maker_than_torch_is_built_for_are_said(
    built: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, build: Any, driver: Any, told: str
) -> None:
    built(build, driver=False)
    node = tmp_path / "other"
    node.touch()
    monkeypatch.setitem(module._NODES, driver, (str(node),))
    found = accelerators()
    assert (found.names, found.problem) == ((), None)
    assert told in str(found.note)
    assert str(node) in str(found.note)


@pytest.mark.parametrize(("place", "card"), [("0000:00:02.0", False), ("0000:8c:00.0", True)])
def test_graphics_inside_a_processor_is_no_gpu_to_speak_of(
    built: Any, tmp_path: Path, place: str, card: bool
) -> None:
    # GIVEN a build of torch for the processor, and an Intel device at that place on the bus
    built(None)
    device = tmp_path / "bus" / place
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x8086\n")
    (tmp_path / "drm" / "renderD129").mkdir(parents=True)
    (tmp_path / "drm" / "renderD129" / "device").symlink_to(device)
    assert ("driver of Intel GPUs" in str(accelerators().note)) == card


@pytest.mark.parametrize(
    ("options", "workload", "told"),
    [({}, False, True), ({"device": "cpu"}, False, False), ({}, True, False)],
)
def test_a_result_on_the_processor_says_that_gpus_were_idle(
    options: dict[str, Any], workload: bool, told: bool
) -> None:
    host = machine(gpu_note="this machine has a driver of AMD GPUs")
    target = Target(name="emulated", script=Path("/x/train.py"), is_workload=workload)
    found = make_plan(Settings(**options), target, host, datetime(2030, 1, 1))
    assert found.device_type == "cpu"
    assert found.notes == (("this machine has a driver of AMD GPUs",) if told else ())


def test_no_makers_gpus_are_seen_by_a_measurement_on_the_processor() -> None:
    hidden = environment(2, "cpu")
    # ROCm and oneAPI take an empty list for none given
    assert hidden["CUDA_VISIBLE_DEVICES"] == ""
    assert hidden["HIP_VISIBLE_DEVICES"] == "-1"
    assert hidden["ONEAPI_DEVICE_SELECTOR"] == "*:cpu"
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR"):
        assert environment(2, "cuda").get(name) == os.environ.get(name)


def test_the_question_to_torch_can_be_asked() -> None:
    # GIVEN the installed torch, which has no accelerator here
    done = subprocess.run(
        [sys.executable, "-c", f"import torch; acc = torch.accelerator.current_accelerator(); "
         f"print(acc is None)\nif acc is not None:\n exec({module._ASK!r})"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[0] == "True" or json.loads(done.stdout.splitlines()[-1])


def test_the_installed_torch_is_read() -> None:
    built_for = "cuda" if torch.version.cuda else "rocm" if torch.version.hip else None
    assert torch_build() == built_for


def plan(machine: Machine, **options: Any) -> SweepPlan:
    target = Target(name="train", script=Path("/x/train.py"), is_workload=False)
    return make_plan(Settings(**options), target, machine, datetime(2030, 1, 1))


def machine(**facts: Any) -> Machine:
    return Machine(**{"cores": tuple(range(224)), "quota": None, "gpus": (), **facts})


EIGHT = machine(gpus=("H200",) * 8)


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_problem_with_the_gpus_is_said_instead_of_measuring_the_processor(device: str) -> None:
    broken = machine(gpu_problem="NVML does not start (version mismatch)")
    with pytest.raises(UsageError, match=r"version mismatch.*--device cpu"):
        plan(broken, device=device)
    assert plan(broken, device="cpu").device_type == "cpu"


def test_auto_takes_what_there_is() -> None:
    assert plan(machine()).device_type == "cpu"
    assert plan(EIGHT).device_type == "cuda"
    assert plan(machine(gpus=("Max",) * 8, gpu_kind="xpu")).device_type == "xpu"
    with pytest.raises(UsageError, match="--device xpu"):
        plan(EIGHT, device="xpu")
    with pytest.raises(ValidationError):
        Settings(device="tpu")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "options", "threads"),
    [
        ({}, {}, 1),  # as torchrun, not 224 // 8
        ({"omp_threads": 6}, {}, 6),
        ({"omp_threads": 6}, {"threads_per_device": 3}, 3),
        ({}, {"devices": "1"}, 224),  # torchrun leaves one rank alone
        ({"omp_threads": 6}, {"devices": "1"}, 6),
        ({}, {"device": "cpu"}, 28),
    ],
)
def test_threads_on_a_gpu_host(facts: Any, options: Any, threads: int) -> None:
    host = machine(gpus=("H200",) * 8, **facts)
    assert plan(host, **options).threads_per_device == threads


@pytest.mark.parametrize(
    ("text", "threads"), [("", None), ("8", 8), ("4,2", 4), ("many", None), ("0", None)]
)
def test_the_threads_that_the_person_set(
    monkeypatch: pytest.MonkeyPatch, text: str, threads: int | None
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert this_machine().omp_threads == threads


def test_a_script_that_trains_on_the_processor_is_no_measurement_of_gpus(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN parameters on the processor, and no device in use
    for place in ("clock", "facts_of_rank"):
        monkeypatch.setattr(f"sfbench.probe.{place}.home_of", home_of)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    with pytest.raises(Refused, match=r"trains on cpu.*Give --device cpu") as caught:
        rank.run()
    assert caught.value.kind == "device"
    assert rank.cuda.events == 0


@pytest.mark.parametrize(
    ("found", "asked", "told"),
    [
        (("cuda", "cuda"), "cpu", "Rank 0 trains on cuda, .* on the CPU.*Give --device cuda"),
        (("cuda", "cpu"), "cuda", "Rank 1 trains on cpu, .* on cuda.*Give --device cpu"),
        (("xpu",), "cuda", "Rank 0 trains on xpu, .*Give --device xpu"),
        (("cuda", "cuda"), "cuda", None),
        (("cpu",), "cpu", None),
    ],
)
def test_another_kind_of_device_than_asked_for_is_refused(
    found: tuple[str, ...], asked: str, told: str | None
) -> None:
    refusal = mismatch(found, asked)
    assert (refusal is None) if told is None else re.search(told, str(refusal))


def test_parameters_parked_on_the_host_are_trained_on_the_current_device(
    cuda: VirtualCuda,
) -> None:
    parameters = [torch.zeros(1)]
    assert home_of(parameters, "cuda") == torch.device("cpu")
    cuda.launch(0.1, 0)  # the script has begun to use devices
    cuda.current = 6
    assert home_of(parameters, "cuda") == torch.device("cuda", 6)
    assert home_of(parameters, "cpu") == torch.device("cpu")


def test_a_table_on_the_host_beside_the_others_does_not_tell_the_device() -> None:
    # GIVEN a large embedding that stays on the host, and the rest of the model on device 3
    on_device: Any = SimpleNamespace(device=torch.device("cuda", 3))
    parameters = [torch.zeros(1), on_device, torch.zeros(1)]
    assert home_of(parameters, "cuda") == torch.device("cuda", 3)
    # AND a measurement on the processor sees that this is none
    assert home_of(parameters, "cpu").type == "cuda"


def test_what_torch_says_where_there_is_no_gpu_is_known() -> None:
    with pytest.raises((AssertionError, RuntimeError)) as caught:
        torch.zeros(1).cuda()
    assert asks_for_a_device(caught.value)
    assert asks_for_a_device(RuntimeError("No HIP GPUs are available"))
    assert not asks_for_a_device(RuntimeError("CUDA out of memory"))


def test_the_python_reducer_has_no_rungs_apart() -> None:
    found = unavailable_rungs(
        LADDER, has_loader=True, joins=False, wrapper="ddp", python_reducer=True
    )
    assert set(found) == {"unsynced", "solo"}
    assert "Python reducer" in found["solo"]
