"""What ranks do in tests of the launcher: ``RankJob.script`` names the function."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from sfbench.common.schema import RankFailure, RankJob
from sfbench.probe.hooks.group_repairs import GroupHooks
from sfbench.probe.hooks.taps import Taps
from sfbench.protocol import record_file
from sfbench.protocol.heartbeat import Heartbeat

RANK = "RANK"


def dispatch(job: RankJob) -> None:
    """Call the function that the job names."""
    globals()[job.script](job)


def tells_environment(job: RankJob) -> None:
    """Write what this rank was given, reduce over all ranks, leave a record."""
    _join_group()
    total = torch.tensor(float(_rank()))
    dist.all_reduce(total)
    facts = {
        **{name: os.environ[name] for name in job.args},
        "sum": total.item(),
        "threads": torch.get_num_threads(),
        "cores": sorted(os.sched_getaffinity(0)),
        "agent_store": "TORCHELASTIC_USE_AGENT_STORE" in os.environ,
        "daemon": multiprocessing.current_process().daemon,
    }
    Path(job.launch_dir, f"facts-{_rank()}.json").write_text(json.dumps(facts))
    print(f"hello from rank {_rank()}")
    print(f"warning from rank {_rank()}", file=sys.stderr)
    os.system(f"echo child of rank {_rank()}")
    _heart(job).phase("done")
    _leave_record(job)


def reports_progress(job: RankJob) -> None:
    heart = _heart(job)
    heart.figures(samples_per_s=100.0, half_width=0.25, measured_s=1.5, budget_s=2.0)
    heart.figures(steps=7)
    heart.phase("measuring")
    _wait_until_seen(job)
    _leave_record(job)


def returns_without_record(job: RankJob) -> None:
    """A script in which the probe saw no step."""


def leaves_hard(job: RankJob) -> None:
    os._exit(0)


def raises_on_rank_1(job: RankJob) -> None:
    _join_group()
    if _rank() == 1:
        raise ValueError("no such column")
    dist.barrier()


def notes_then_lingers(job: RankJob) -> None:
    """A failure is noted, but the process does not end."""
    _join_group()
    if _rank() == 1:
        note = RankFailure(rank=1, kind="not-wrapped", message="No DDP.", script_fault=False)
        record_file.write_failure(Path(job.launch_dir), note)
        _stay()
    dist.barrier()


def exits_3_on_rank_1(job: RankJob) -> None:
    _join_group()
    if _rank() == 1:
        print("giving up")
        sys.exit(3)
    dist.barrier()


def exits_by_text(job: RankJob) -> None:
    sys.exit("no data folder")


def killed_on_rank_1(job: RankJob) -> None:
    _join_group()
    if _rank() == 1:
        print("a line without an end", end="\r")
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def killed_on_the_second_node(job: RankJob) -> None:
    """The ranks of the first have no connection by which they would notice."""
    if _rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    _stay()


def hangs_on_rank_1(job: RankJob) -> None:
    _join_group()
    heart = _heart(job)
    heart.phase("warmup")
    heart.figures(steps=5)
    if _rank() == 1:
        sleeps_in_the_loader()
    dist.barrier()


def sleeps_in_the_loader() -> None:
    time.sleep(1000)


def ignores_sigterm(job: RankJob) -> None:
    """Every rank, and a child of each, ignore SIGTERM; nothing ends by itself."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(["sleep", "1000"])  # the disposition is inherited
    _join_group()
    _heart(job).phase("measuring")
    _stay()


def leaves_shared_memory(job: RankJob) -> None:
    """A file as torch makes for a tensor in shared memory; then the same."""
    shared = Path(f"/dev/shm/torch_{os.getpid()}_1_0")
    shared.touch()
    print(shared)
    ignores_sigterm(job)


def aborts_after_record(job: RankJob) -> None:
    _join_group()
    _leave_record(job)
    dist.barrier()
    if _rank() == 1:
        os.abort()


def aborts_before_the_record_of_rank_0(job: RankJob) -> None:
    """Rank 1 has handed its part over and dies while rank 0 still writes."""
    _join_group()
    _heart(job).phase("done")
    dist.barrier()
    if _rank() == 1:
        os.abort()
    time.sleep(0.5)  # the writing
    _leave_record(job)


def leaves_orphan(job: RankJob) -> None:
    """A grandchild in a session of its own, whose parent has ended."""
    code = "import subprocess; p = subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    subprocess.run([sys.executable, "-c", f"{code}; print(p.pid)"], check=True)
    _leave_record(job)


def ends_early_on_rank_1(job: RankJob) -> None:
    """Rank 1 has fewer batches: it is through while rank 0 waits for it."""
    _join_group()
    heart = _heart(job)
    heart.figures(steps=5)
    if _rank() == 1:
        heart.phase("script-ended")
        _stay()
    heart.phase("measuring")
    dist.barrier()


def evaluates_alone_on_rank_0(job: RankJob) -> None:
    """Rank 0 computes for longer than a standstill may last, while rank 1 is through."""
    heart = _heart(job)
    heart.figures(steps=5)
    heart.phase("script-ended")
    if _rank() == 0:
        heart.phase("measuring")
        end_s = time.monotonic() + float(job.args[0])
        while time.monotonic() < end_s:
            sum(range(10_000))
        _leave_record(job)


def starts_processes(job: RankJob) -> None:
    """A DataLoader with workers, and a fork server of the script's own."""
    data = torch.utils.data.TensorDataset(torch.arange(8))
    loader = torch.utils.data.DataLoader(data, num_workers=2)
    total = sum(int(batch) for (batch,) in loader)
    context = multiprocessing.get_context("forkserver")
    with context.Pool(1) as pool:
        grandparent = pool.apply(_grandparent)
    facts = {"total": total, "own_server": grandparent == os.getpid()}
    Path(job.launch_dir, f"facts-{_rank()}.json").write_text(json.dumps(facts))
    _leave_record(job)


def _grandparent() -> int:
    """Of a process from a fork server: who started that server."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(status.partition("PPid:")[2].split()[0])


def _stay() -> None:
    while True:  # a handled signal ends one pause
        signal.pause()


def _rank() -> int:
    return int(os.environ[RANK])


def _join_group() -> None:
    """As the probe does it: the agent's store serves one env:// rendezvous."""
    taps = Taps()
    GroupHooks(before_destroy=lambda: None, before_init=lambda: None).install(taps)
    dist.init_process_group("gloo")
    taps.restore()


def _heart(job: RankJob) -> Heartbeat:
    return Heartbeat(Path(job.launch_dir), int(os.environ["LOCAL_RANK"]))


def _leave_record(job: RankJob) -> None:
    if _rank() == 0:
        Path(job.launch_dir, record_file.FILE_NAME).touch()


def _wait_until_seen(job: RankJob) -> None:
    """Until the test opens the named pipe ``seen`` for writing."""
    Path(job.launch_dir, "seen").read_bytes()
