"""Each check against scripts with its fault and scripts that only look like it, with real ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sfbench.checks import CHECKS, run_checks
from sfbench.checks.facts import LaunchFacts, launch_facts
from sfbench.collect.frames import read_launch
from sfbench.common.schema import CheckResult, ProbeOptions, RankJob
from sfbench.launch.local import LocalLauncher
from sfbench.plan.sweep_plan import LaunchPlan, NodeJob
from sfbench.plan.targets import resolve_target

SCRIPTS = Path(__file__).parent / "scripts"
SECONDS = 1.0
ANSWER_S = 10.0

Watch = Callable[..., LaunchFacts]


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Workloads make their data here. Before the launcher, which passes the environment on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SFBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def watch(script_launcher: LocalLauncher, tmp_path: Path) -> Watch:
    """Runs a script's variant as ``sfbench check`` does, and gives the facts."""

    def run(script: Path, *args: str, devices: int = 2) -> LaunchFacts:
        folder = tmp_path / f"{devices}"
        launch_dir, out = folder / "launch", folder / "out"
        for path in (launch_dir, out):
            path.mkdir(parents=True)
        options = ProbeOptions(checks=True, seconds=SECONDS)
        words = tuple(word.replace("{out}", str(out)) for word in args)
        job = RankJob(script=str(script), args=words, launch_dir=str(launch_dir), probe=options)
        node_job = NodeJob(job=job, nproc=devices, log_dir=folder / "logs", timeout_s=60.0)
        plan = LaunchPlan(index=0, round=0, devices=devices, cores=None, seconds=SECONDS, seed=0)
        outcome = script_launcher.run(node_job, lambda progress: None)
        return launch_facts(read_launch(plan, outcome, launch_dir))

    return run


def fired(results: tuple[CheckResult, ...]) -> dict[str, tuple[str, str]]:
    return {r.id: (r.status, r.evidence) for r in results if r.status in ("fail", "warn")}


FAULTS = [
    ("independent-copies", "no_group", "fail", "never called torch.distributed.init_process_group"),
    ("independent-copies", "not_wrapped", "fail", "without exchanging gradients"),
    ("independent-copies", "around", "fail", "call the wrapper, not its .module"),
    ("independent-copies", "second_model", "fail", "parameters outside the DDP model differ"),
    ("independent-copies", "apart", "fail", "broadcast the initial weights"),
    ("data-sharding", "no_sampler", "fail", "64 of the same samples of Rows (data_sharding.py:"),
    ("data-sharding", "same_seed", "fail", "the same 64 samples in the same order"),
    ("data-sharding", "augmented", "fail", "64 of the same samples of Augmented, augmented"),
    ("data-sharding", "random_inside", "fail", "the same 32 samples in the same order"),
    ("data-sharding", "whole_stream", "fail", "sfbench.data.shard"),
    ("data-sharding", "own_batches", "fail", "samples in the same order"),
    ("epoch-shuffle", "forgotten", "fail", "call sampler.set_epoch(epoch)"),
    ("epoch-shuffle", "constant", "fail", "under DistributedSampler (epoch_shuffle.py:66)"),
    ("epoch-shuffle", "cycled", "fail", "had the same order"),
    ("split-leak", "unseeded", "fail", "of the 64 samples that rank 0 holds out are trained on"),
    ("uneven-inputs", "returns", "fail", "rank 1 stopped at step 5, rank 0 waits in step 6"),
    ("uneven-inputs", "barrier", "fail", "rank 1 stopped at step 5, rank 0 waits in step 6"),
    ("uneven-inputs", "reduce", "fail", "rank 1 stopped at step 5, rank 0 waits in step 6"),
    ("uneven-inputs", "validates", "fail", "rank 1 stopped at step 5, rank 0 waits in step 6"),
    ("uneven-inputs", "later", "fail", "rank 1 stopped at step 15, rank 0 waits in step 16"),
    ("checkpoint-keys", "wrapped", "fail", "4 keys of out/last.pt name a wrapper, as module.0"),
    ("checkpoint-keys", "nested", "fail", "as state.model.module.0.weight (checkpoint_keys.py:54)"),
    ("checkpoint-keys", "compiled", "fail", "_orig_mod.0.weight"),
    ("checkpoint-keys", "whole", "fail", "DistributedDataParallel itself"),
    ("checkpoint-writers", "one_path", "fail", "Ranks 0 and 1 both write out/last.pt"),
    ("checkpoint-writers", "one_log", "fail", "out/train.log (checkpoint_writers.py:18)"),
    ("download-race", "all_make", "fail", "Ranks 0 and 1 both made out/rows.npy"),
    ("download-race", "no_barrier", "fail", "Rank 1 read out/rows.npy"),
    ("download-race", "half_read", "fail", "Rank 1 read out/rows.npy (download_race.py:44) before"),
    ("accumulation-sync", "every_time", "fail", "averaged 4 times per update, on 4 micro-steps"),
    ("accumulation-sync", "backward_only", "fail", "saves "),
    ("learning-rate", "every_rank_steps", "warn", "CosineAnnealingLR steps 2 times per update"),
    ("skipped-updates", "overflowing", "fail", "GradScaler skipped "),
    ("unused-parameters", "none_unused", "warn", "but none was unused in 12 steps"),
]

CONTROLS = [
    ("independent-copies", ("flattened", "sharded", "joined", "diverged")),
    ("data-sharding", ("own_shard", "shared_stream", "padded", "synthetic", "model_parallel")),
    ("data-sharding", ("halves", "own_batches_apart", "endless", "repeated")),
    ("epoch-shuffle", ("set_epoch", "batch_sampler", "own_shuffle", "one_epoch")),
    ("epoch-shuffle", ("looked_at", "in_order")),
    ("split-leak", ("seeded", "shards")),
    ("uneven-inputs", ("dropped", "joined", "least")),
    ("checkpoint-keys", ("bare", "own_name", "averaged")),
    ("checkpoint-writers", ("own_names", "first_rank", "sharded_folder", "in_turn", "temporary")),
    ("download-race", ("once", "guarded", "turned_guard", "saved")),
    ("accumulation-sync", ("no_sync", "by_flag", "two_views")),
    ("learning-rate", ("per_update", "per_epoch", "two_in_turn")),
    ("skipped-updates", ("sound", "finding_scale")),
    ("unused-parameters", ("some_unused", "not_asked")),
]


def script_of(check: str) -> Path:
    return SCRIPTS / f"{check.replace('-', '_')}.py"


@pytest.mark.parametrize(("check", "variant", "status", "said"), FAULTS)
def test_fault_is_found(watch: Watch, check: str, variant: str, status: str, said: str) -> None:
    # GIVEN a script with one fault WHEN it is watched
    facts = watch(script_of(check), variant, "{out}")
    found = fired(run_checks([facts]))
    # THEN that check says so, with what was seen, and no other one does
    assert set(found) == {check}
    assert found[check][0] == status
    assert said in found[check][1]


@pytest.mark.parametrize("ending", ["returns", "barrier", "reduce"])
def test_a_rank_that_waits_for_ever_is_told_within_seconds(watch: Watch, ending: str) -> None:
    # GIVEN a rank that has a batch less, and then ends, or waits for the others elsewhere
    began = time.monotonic()
    # WHEN it is watched THEN there is no wait until some time-out
    facts = watch(script_of("uneven-inputs"), ending)
    assert time.monotonic() - began < ANSWER_S
    assert facts.failure is not None
    assert facts.failure.kind == "ranks-disagree"


@pytest.mark.parametrize(
    ("check", "variant"), [(check, v) for check, variants in CONTROLS for v in variants]
)
def test_control_stays_silent(watch: Watch, check: str, variant: str) -> None:
    # GIVEN a script that does right what looks like the fault
    facts = watch(script_of(check), variant, "{out}")
    # WHEN it is judged THEN it ran, and no check says anything
    assert facts.failure is None
    assert fired(run_checks([facts])) == {}


@pytest.mark.parametrize(
    ("variant", "check", "said"),
    [
        ("divided", "batch-meaning", "Samples per update: 8 at 1, 8 at 2 devices"),
        ("threads", "threads", "Threads per rank: 2 at 1 device; 1 at 2 devices"),
        ("plain", None, ""),
    ],
)
def test_points_that_cannot_be_compared(
    watch: Watch, variant: str, check: str | None, said: str
) -> None:
    # GIVEN a script that does something else at another number of ranks
    points = [watch(SCRIPTS / "points.py", variant, devices=n) for n in (1, 2)]
    # WHEN both points are judged THEN the check that compares them says so
    found = fired(run_checks(points))
    assert set(found) == ({check} if check else set())
    assert check is None or said in found[check][1]


@pytest.mark.parametrize("workload", ["vision", "language", "recommender", "emulated"])
def test_no_check_fires_on_a_reference_workload(watch: Watch, workload: str) -> None:
    # GIVEN a reference workload as it is WHEN it is watched
    facts = watch(resolve_target(workload).script)
    # THEN it ran, and no check says anything
    assert facts.failure is None
    assert fired(run_checks([facts])) == {}


def test_each_check_has_a_fault_and_a_control() -> None:
    by_points = {"batch-meaning", "threads"}
    assert {fault[0] for fault in FAULTS} | by_points == set(CHECKS)
    assert {control[0] for control in CONTROLS} | by_points == set(CHECKS)
