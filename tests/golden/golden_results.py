"""Results of every kind that a report has to show, made from the stored one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path

from sfbench.collect.result import load_result
from sfbench.common.schema import (
    AllReduceTime,
    BatchTime,
    Beginning,
    Diagnosis,
    Interval,
    OwnSteps,
    Point,
    RankResult,
    Share,
    Stretch,
    SweepResult,
    TimeShare,
)
from sfbench.report.html import render_html
from sfbench.report.tried_view import ChangeView, TriedView

STORED = load_result(Path(__file__).parent / "sweep-schema1.json")
ONE, TWO, FOUR, EIGHT, SIXTEEN = STORED.points
RATE = 400.0
"""samples/s of one device."""


def known(value: float, half: float = 0.005) -> Interval:
    return Interval(value=value, low=value * (1 - half), high=value * (1 + half))


def shares(half: float | None = 0.01, **parts: float) -> TimeShare:
    """Parts of a step; computing takes the rest."""
    ids = [field.name for field in fields(TimeShare)]
    values = dict.fromkeys(ids, 0.0) | parts
    values["compute"] = 1.0 - sum(parts.values())
    return TimeShare(
        **{
            name: Share(value=value)
            if half is None
            else Share(value=value, low=value - half, high=value + half)
            for name, value in values.items()
        }
    )


def point(devices: int, reached: float = 1.0, **changes: object) -> Point:
    """A measured point with everything that a report can draw."""
    step_s = 0.04 / reached
    base = replace(
        EIGHT,
        devices=devices,
        samples_per_s=known(RATE * devices * reached),
        ideal_samples_per_s=RATE * devices,
        efficiency=known(reached),
        step_s=known(step_s),
        global_batch=16.0 * devices,
        batch_per_device=16.0,
        time_share=shares(),
        slow_rank=None,
        ranks=tuple(rank(r, step_s) for r in range(devices)),
        beginning=Beginning(step_s=(0.4, 0.1, 0.06) + (step_s,) * 9, warmup_steps=3),
        own_steps=OwnSteps(
            first_rank=tuple(range(min(devices, 32))),
            step_s=tuple((step_s, 1.1 * step_s, None) for _ in range(min(devices, 32))),
        )
        if devices > 1
        else None,
        all_reduce=tuple(AllReduceTime(bytes=4**k, seconds=1e-5 * 3**k) for k in range(5, 10))
        if devices > 1
        else (),
        batch_times=tuple(
            BatchTime(samples=16.0 * k, step_s=known(0.01 + 0.03 * k)) for k in (0.5, 1.0, 2.0)
        )
        if devices == 1
        else (),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def rank(number: int, step_s: float) -> RankResult:
    return RankResult(
        rank=number,
        local_rank=number % 8,
        host=f"node-{number // 8}",
        device=f"cuda:{number % 8}",
        samples_per_s=16.0 / step_s,
        solo_step_s=0.04,
        data_wait_s=0.001,
        peak_memory_bytes=2**33 + number * 2**20,
    )


def sweep(name: str, *points: Point, **changes: object) -> SweepResult:
    base = replace(STORED, name=name, emulated=False, points=points, diagnoses=(), warnings=())
    return replace(base, **changes)  # type: ignore[arg-type]


def cause(id_: str, devices: int, regain: float, **changes: object) -> Diagnosis:
    made = Diagnosis(
        id=id_,
        devices=devices,
        severity="bottleneck",
        rank=None,
        regain=Interval(value=regain, low=regain - 0.01, high=regain + 0.01),
        evidence={"wait_share": 0.4, "data_wait_s_per_step": 0.02, "disproof": "more workers"},
        advice=("Use 6 workers per device.", "Decode ahead of time."),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def good() -> SweepResult:
    return sweep("good", *(point(n, 1.0 - 0.004 * n) for n in (1, 2, 4, 8)))


def starved() -> SweepResult:
    found = [cause("data-loader-starvation", n, 0.05 * n) for n in (8, 4, 2)]
    return sweep(
        "starved",
        point(1, time_share=shares(data=0.05)),
        *(point(n, 1 - 0.05 * n, time_share=shares(data=0.05 * n + 0.05)) for n in (2, 4, 8)),
        diagnoses=tuple(found),
    )


def straggler() -> SweepResult:
    slow = cause("straggler", 8, 0.2, rank=5, evidence={"kind": "persistent", "where": "forward"})
    held = point(8, 0.78, time_share=shares(straggler=0.2, communication=0.02), slow_rank=5)
    rows = tuple((0.04, 0.041) if r != 5 else (0.05, 0.054) for r in range(8))
    strip = Stretch(
        rank=(0, 0, 1, 1),
        part=("stall", "forward", "forward", "backward"),
        began_s=(0.0, 0.25, 0.0, 0.02),
        ended_s=(0.25, 0.27, 0.02, 0.27),
    )
    held = replace(held, own_steps=OwnSteps(first_rank=tuple(range(8)), step_s=rows), stretch=strip)
    return sweep("straggler", point(1), point(4, 0.97), held, diagnoses=(slow,))


def failed() -> SweepResult:
    lost = {"status": "failed", "error": "rank 1 raised MemoryError\n  last line\nlog: logs/rank1"}
    gone = [replace(SIXTEEN, devices=n, **lost) for n in (2, 4)]  # type: ignore[arg-type]
    hung = replace(SIXTEEN, devices=8, status="timeout", error="no progress for 300 s")
    return sweep("failed", point(1), *gone, hung)


def many_ranks() -> SweepResult:
    slow = cause("straggler", 512, 0.1, rank=77, evidence={"kind": "persistent"})
    share = shares(communication=0.15, straggler=0.1)
    big = point(512, 0.7, time_share=share, slow_rank=77)
    return sweep("many", point(1), point(64, 0.9), big, diagnoses=(slow,))


def single() -> SweepResult:
    return sweep("single", point(1))


def unknown() -> SweepResult:
    vague = Interval(value=0.5, low=0.2, high=0.9)
    at_two = point(2, 0.5, efficiency=vague, time_share=shares(half=0.4, data=0.3))
    untold = point(4, 0.6, time_share=None, own_steps=None, all_reduce=(), step_quantiles=None)
    return sweep("unknown", point(1, time_share=shares(half=None)), at_two, untold)


def hostile() -> SweepResult:
    text = '\u202e"><script>alert(1)</script><img src=//x onerror=alert(1)>' + "x" * 10_000
    env = replace(STORED.environment, host=text, command=text, cpu=text, git_commit=text)
    ranks = tuple(replace(rank(r, 0.04), host=text, device=text) for r in range(2))
    odd = cause(text, 2, 0.2, evidence={text: text}, advice=(text,))
    return sweep(
        text,
        point(1),
        point(2, 0.8, ranks=ranks, warnings=(text,)),
        replace(SIXTEEN, error=text),
        target=text,
        script_args=(text,),
        environment=env,
        checks=tuple(replace(check, evidence=text) for check in STORED.checks),
        diagnoses=(odd,),
        warnings=(text,),
    )


def _trend() -> str:
    env = STORED.environment
    days = [replace(env, started_at=f"2026-05-{day:02}T09:30:00+00:00") for day in (5, 4)]
    return render_html(
        [replace(good(), name=f"day {e.started_at[:10]}", environment=e) for e in days]
    )


def _gate() -> str:
    return render_html(
        [starved()],
        good(),
        verdict=("REGRESSION: 8 devices, 1920 -> 1150 samples/s", "Data loading grew."),
        figures=[("samples/s", "1920", "1150", "-40% ±2"), ("efficiency", "97%", "60%", "-37")],
    )


def _tune() -> str:
    tried = TriedView(
        headline="+109% ±7 samples/s at 8 devices with num_workers=2, persistent_workers=True.",
        remarks=("interconnect: no setting that can be tried mends it.",),
        confirmed="Confirmed in 6 fresh pairs of launches: +109% ±7, predicted +147%.",
        changes=(
            ChangeView(
                place="train.py:18: DataLoader: num_workers=2, persistent_workers=True",
                diff="--- a/train.py\n+++ b/train.py\n@@ -18 +18 @@\n-    loader = DataLoader("
                "ds, batch_size=16, sampler=DistributedSampler(ds))\n+    loader = DataLoader("
                "ds, batch_size=16, sampler=DistributedSampler(ds), num_workers=2, "
                "persistent_workers=True)",
            ),
        ),
        cautions=("workers draw other numbers",),
        headings=("settings", "predicted", "measured", "rounds", "result"),
        rows=(
            ("num_workers=2, persistent_workers=True", "+147%", "+110% ±9", "6", "gain"),
            ("bucket_cap_mb=25", "–", "–", "–", "failed"),
        ),
        reasons=("bucket_cap_mb=25: rank 1 raised MemoryError",),
    )
    return render_html([starved()], tried=tried)


PAGES: Mapping[str, Callable[[], str]] = {
    "good": lambda: render_html([good()]),
    "starved": lambda: render_html([starved()]),
    "straggler": lambda: render_html([straggler()]),
    "failed": lambda: render_html([failed()]),
    "many-ranks": lambda: render_html([many_ranks()]),
    "single": lambda: render_html([single()]),
    "unknown": lambda: render_html([unknown()]),
    "comparison": lambda: render_html([starved()], good()),
    "trend": _trend,
    "gate": _gate,
    "tune": _tune,
    "hostile": lambda: render_html([hostile()]),
}
