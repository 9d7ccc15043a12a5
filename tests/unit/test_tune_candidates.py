"""What is tried follows from what was diagnosed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfbench.common.schema import Diagnosis, Interval
from sfbench.tuning.candidates import NO_TIME, candidates, fitting
from sfbench.tuning.job_facts import JobFacts
from sfbench.tuning.limits import limits
from sfbench.tuning.tried import TriedSettings
from tests.unit.synthetic import LOOP

OWN_PROCESS = replace(
    LOOP, loader_workers=0, prefetch_factor=None, persistent_workers=False, pin_memory=False
)


def diagnosis(id_: str, **evidence: float | int | str | bool | None) -> Diagnosis:
    return Diagnosis(
        id=id_,
        devices=2,
        severity="bottleneck",
        rank=None,
        regain=Interval(value=0.3, low=0.2, high=0.4),
        evidence=evidence,
        advice=("Do something about it.",),
    )


def starving(limit: str, **evidence: float | int | str | bool | None) -> Diagnosis:
    known = {"limit": limit, "step_from_memory_s": 0.010, "cores_used_by_training": 0.2}
    return diagnosis("data-loader-starvation", **{**known, **evidence})


def facts(*found: Diagnosis, **changes: object) -> JobFacts:
    known = JobFacts(
        devices=2,
        cores=8,
        on_device=False,
        threads=1,
        step_s=0.040,
        loop=replace(LOOP, wrapper="ddp", buffers=0),
        diagnoses=found,
        loader_lines=("train.py:12",),
        model_lines=("train.py:20",),
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def tried(known: JobFacts, *allowed: str) -> list[str]:
    return [one.name for one in candidates(known, allowed)]


def test_a_healthy_job_has_nothing_to_try() -> None:
    assert tried(facts()) == []


def test_a_loader_in_the_training_process_gets_the_workers_that_it_needs() -> None:
    found = starving("no-workers", data_wait_s_per_step=0.030)

    known = candidates(facts(found, loop=OWN_PROCESS, fetch_cpu_s=0.001))

    assert [one.name for one in known] == [
        "num_workers=3, persistent_workers=True",
        "num_workers=6, persistent_workers=True",
    ]
    assert known[0].predicted == pytest.approx(3.0)
    assert known[0].settings.loads_only


def test_workers_that_need_cores_are_no_more_than_there_are_free() -> None:
    found = starving("no-workers", data_wait_s_per_step=0.030, cores_used_by_training=2.0)

    known = facts(found, loop=OWN_PROCESS, fetch_cpu_s=0.028, cores=6)

    assert tried(known) == ["num_workers=1, persistent_workers=True"]


def test_where_cores_set_the_limit_it_is_said_and_no_worker_is_tried() -> None:
    found = starving("no-workers", data_wait_s_per_step=0.030, cores_used_by_training=1.8)
    known = facts(found, loop=OWN_PROCESS, fetch_cpu_s=0.028, cores=2)

    assert tried(known) == []
    assert limits(known, (), ())[0].startswith("Cores set the limit:")


def test_workers_are_not_tried_above_one_where_each_would_load_everything() -> None:
    found = starving("no-workers", data_wait_s_per_step=0.030)

    known = facts(found, loop=OWN_PROCESS, streams=True)

    assert tried(known) == ["num_workers=1, persistent_workers=True"]


def test_too_few_workers_become_more() -> None:
    found = starving("workers", one_worker_s_per_batch=0.040, one_worker_cpu_s_per_batch=0.002)

    assert tried(facts(found)) == ["num_workers=4", "num_workers=8"]


def test_workers_that_start_anew_at_each_epoch_are_kept() -> None:
    stall = diagnosis("periodic-stall", kind="epoch-start", stall_s_per_step=0.010)

    known = candidates(facts(stall, loop=replace(LOOP, persistent_workers=False)))

    assert [one.name for one in known] == ["persistent_workers=True"]
    assert known[0].predicted == pytest.approx(1 / 3)


def test_buckets_are_tried_as_the_link_says() -> None:
    found = diagnosis("interconnect", best_bucket_cap_mb=5, best_bucket_cap_saves_s=0.008)

    known = candidates(facts(found))

    assert [one.name for one in known] == ["bucket_cap_mb=5"]
    assert known[0].predicted == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("buckets", "wanted"),
    [((16_640,) * 60, ["bucket_cap_mb=25"]), ((2**20, 25 * 2**20, 2**22), [])],
    ids=["smaller than DDP makes them", "as DDP makes them"],
)
def test_buckets_that_are_small_by_request_are_tried_as_ddp_makes_them(
    buckets: tuple[int, ...], wanted: list[str]
) -> None:
    # GIVEN a model of the link that promises nothing
    found = diagnosis("interconnect", best_bucket_cap_mb=1, best_bucket_cap_saves_s=0.0)

    loop = replace(LOOP, wrapper="ddp", buffers=0, bucket_bytes=buckets)

    known = candidates(facts(found, loop=loop))
    assert [one.name for one in known] == wanted
    assert all(one.predicted is None for one in known)


def test_syncs_that_lead_to_no_update_are_left_out() -> None:
    found = diagnosis("interconnect", exposed_s_per_step=0.016)

    known = candidates(facts(found, syncs_per_update=4))

    assert [one.name for one in known] == ["no_sync() on 3 of 4 passes"]
    assert known[0].predicted == pytest.approx(0.012 / 0.028)


@pytest.mark.parametrize("none_unused", [True, False])
def test_the_search_for_unused_parameters_goes_only_if_none_is(none_unused: bool) -> None:
    loop = replace(LOOP, wrapper="ddp", find_unused_parameters=True, static_graph=False)

    found = tried(facts(loop=loop, none_unused=none_unused, search_s=0.004))

    wanted = ["find_unused_parameters=False", "static_graph=True"] if none_unused else []
    assert found == wanted


def test_what_changes_training_is_tried_only_if_allowed() -> None:
    found = diagnosis("interconnect", bf16_compression_saves_s=0.01, exposed_s_per_step=0.02)
    small = diagnosis("small-batch", fixed_s_per_step=0.01)
    known = facts(found, small, loop=replace(LOOP, wrapper="ddp", buffers=0, backend="nccl"))

    assert tried(known) == []
    assert set(tried(known, "batch", "numerics")) == {"batch x2", "bf16 gradients"}
    assert all(one.caution for one in candidates(known, ("batch", "numerics")))
    assert "bf16 gradients" not in tried(facts(found), "numerics"), "gloo does not send them"
    assert any("--allow batch" in note for note in limits(known, (), ()))


def test_the_largest_predicted_gain_comes_first_and_the_budget_ends_the_list() -> None:
    buckets = diagnosis("interconnect", best_bucket_cap_mb=5, best_bucket_cap_saves_s=0.004)
    loading = starving("no-workers", data_wait_s_per_step=0.030)
    known = candidates(facts(buckets, loading, loop=replace(OWN_PROCESS, wrapper="ddp")))

    shown = fitting(known, 2)

    assert [one.settings.loads_only for one in known] == [True, True, False]
    assert [one.unfit for one in shown] == ["", "", NO_TIME]


def test_nothing_is_predicted_of_a_cause_that_is_not_sure() -> None:
    sure, vague = (
        candidates(facts(starving("no-workers", data_wait_s_per_step=0.03, verdict=verdict),
                         loop=replace(OWN_PROCESS, wrapper="ddp")))
        for verdict in ("measured", "inconclusive")
    )  # fmt: skip
    assert [one.name for one in vague] == [one.name for one in sure]
    assert sure[0].predicted is not None
    assert [one.predicted for one in vague] == [None] * len(vague)


def test_what_no_setting_mends_is_said() -> None:
    found = starving("serialised")

    assert limits(facts(found), candidates(facts(found)), ()) == (
        "data-loader-starvation: no setting that can be tried mends it. Do something about it.",
    )


def test_settings_join_and_the_later_wins() -> None:
    one = TriedSettings(loader=(("num_workers", 2),), threads=2)
    other = TriedSettings(loader=(("num_workers", 4), ("pin_memory", True)), freeze=True)

    assert str(one.joined(other)) == (
        "num_workers=4, pin_memory=True, 2 threads per device, gc.freeze()"
    )
