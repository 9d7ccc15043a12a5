"""A sweep as a job of Slurm: the script, what is refused, and how states become ends."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from sfbench.cli.app import main
from sfbench.common.errors import ResultError, UsageError
from sfbench.plan.slurm_options import SlurmSettings
from sfbench.plan.slurm_script import SlurmJob, script_of
from sfbench.run import slurm_queue
from sfbench.run.slurm_queue import JobState, SubmittedJob, state_of, submitted_job, wait_for

GOLDEN = Path(__file__).parents[1] / "golden" / "sweep-schema1.json"
SBATCH = """#!/bin/sh
cat > "$STAGE/submitted"
echo "$SAYS"
exit "$CODE"
"""
SQUEUE = """#!/bin/sh
state=$(head -n 1 "$STAGE/states")
sed -i 1d "$STAGE/states"
case "$state" in
  unknown) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1;;
  silent) echo "Unable to contact slurm controller" >&2; exit 1;;
  run*) echo "half a line" >> "$STAGE/results/.slurm/7.log"; echo "RUNNING|None";;
  *) cp "$STAGE/7.code" "$STAGE/results/.slurm/" 2>/dev/null
     if [ -e "$STAGE/sweep.json" ]; then
       mkdir -p "$STAGE/results/one"; cp "$STAGE/sweep.json" "$STAGE/results/one/"
     fi
     echo "$state";;
esac
"""
SCANCEL = """#!/bin/sh
echo "$@" > "$STAGE/cancelled"
"""


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the commands of a Slurm that plays ``states``, line by line."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in {"sbatch": SBATCH, "squeue": SQUEUE, "scancel": SCANCEL}.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    (tmp_path / "train.py").write_text("x = 1\n")
    monkeypatch.setenv("PATH", f"{commands}:/bin:/usr/bin")
    monkeypatch.setenv("STAGE", str(tmp_path))
    monkeypatch.setenv("SAYS", "7")
    monkeypatch.setenv("CODE", "0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(slurm_queue, "LOOK_S", 0.0)
    monkeypatch.setattr(slurm_queue, "APPEARS_S", 0.0)
    monkeypatch.setattr(slurm_queue.shutil, "which", lambda name: None)
    return tmp_path


def sweep(*words: str) -> int | str | None:
    typed = ["sweep", "train.py", "--launcher=slurm", "--name=one", *words]
    with pytest.raises(SystemExit) as end:
        main(typed)
    return end.value.code


def job(folder: Path, **wanted: object) -> SlurmJob:
    return SlurmJob(
        name="one", command=("sfbench", "sweep", "a b.py"), folder=folder, output=folder / "r",
        settings=SlurmSettings.model_validate(wanted),
    )  # fmt: skip


def test_the_script_is_plain_bash_that_asks_for_one_allocation(tmp_path: Path) -> None:
    script = script_of(
        job(tmp_path, nodes=2, partition="gpu", account="lab", gpus_per_node="h100:8",
            time="1-12:30", sbatch_extra="--qos=high --mem=0")
    )  # fmt: skip

    asked = [line.split(" ", 1)[1] for line in script.splitlines() if line.startswith("#SBATCH ")]
    assert asked == [
        "--job-name=sfbench-one", "--nodes=2", "--ntasks-per-node=1", "--partition=gpu",
        "--account=lab", "--gpus-per-node=h100:8", "--time=1-12:30", f"--chdir={tmp_path}",
        f"--output={tmp_path}/r/.slurm/%j.log", "--signal=INT@60", "--no-requeue",
        "--qos=high --mem=0",
    ]  # fmt: skip
    assert script.count("srun ") == 1
    assert "sfbench sweep 'a b.py'" in script
    checked = subprocess.run(["bash", "-n"], input=script, text=True, check=False)
    assert checked.returncode == 0


def test_without_gpus_a_job_has_its_nodes_for_itself(tmp_path: Path) -> None:
    assert "#SBATCH --exclusive\n" in script_of(job(tmp_path))


def test_a_dry_run_shows_what_would_be_submitted(
    stage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(
            ["sweep", "train.py", "--launcher=slurm", "--nodes=2", "--name=one", "--devices=1,2",
             "--allow-saves", "--no-report", "--dry-run", "--", "--lr", "0 1"]
        )  # fmt: skip

    assert end.value.code == 0
    command = shlex.split(capsys.readouterr().out.split("sfbench sweep ")[1].splitlines()[0])
    assert command == [
        "--launcher=local", "train.py", "--devices=1,2", "--name=one", "--allow-saves",
        "--no-report", "--", "--lr", "0 1",
    ]  # fmt: skip
    assert not (stage / "submitted").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["sweep", "train.py", "--partition=gpu"], "--partition is for --launcher slurm"),
        (["sweep", "train.py", "--no-wait"], "--no-wait is for --launcher slurm"),
        (["sweep", "train.py", "--launcher=slurm", "--nnodes=2"], "give --nodes N"),
        (["sweep", "--suite", "--launcher=slurm"], "--suite runs on one node"),
        (["sweep", "train.py", "--launcher=slurm", "--nodes=9"], "at least 9 among --devices"),
        (["sweep", "train.py", "--launcher=slurm", "--time=soon"], "expected a time as Slurm"),
        (["sweep", "no.py", "--launcher=slurm"], "no.py"),
        (["collect", "12"], "job 12: nothing is kept of it"),
        (["collect", "../x"], "no number of a job"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_submitted(
    stage: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)

    assert end.value.code == 2
    assert told in capsys.readouterr().err
    assert not (stage / "submitted").exists()


def test_a_job_is_waited_for_and_its_result_shown(
    stage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stage / "states").write_text("PENDING|Resources\nsilent\nrun\nrun\nCOMPLETED|None\n")
    (stage / "sweep.json").write_bytes(GOLDEN.read_bytes())
    (stage / "7.code").write_text("0\n")

    code = sweep("--json")

    out, err = capsys.readouterr()
    assert code == 5  # of the point that failed there
    assert json.loads(out)["name"] == json.loads(GOLDEN.read_text())["name"]
    assert "job 7: PENDING (Resources)\njob 7: RUNNING\njob 7: half a line\n" in err
    assert (stage / "results" / ".slurm" / "7.sh").read_text() == (stage / "submitted").read_text()


def test_a_job_is_collected_later(stage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("--no-wait") == 0
    assert capsys.readouterr().out == "7\n"
    (stage / "states").write_text("unknown\n")
    (stage / "results" / "one").mkdir()
    (stage / "results" / "one" / "sweep.json").write_bytes(GOLDEN.read_bytes())

    with pytest.raises(SystemExit) as end:
        main(["collect", "7", "--json"])

    assert end.value.code == 5
    assert json.loads(capsys.readouterr().out)["name"] == json.loads(GOLDEN.read_text())["name"]


@pytest.mark.parametrize(
    ("state", "code", "exits"),
    [
        ("FAILED|NonZeroExitCode", "2", 2),
        ("FAILED|NonZeroExitCode", "4", 4),
        ("TIMEOUT|TimeLimit", "", 4),
        ("CANCELLED|None", "", 130),
    ],
)
def test_an_end_without_result_is_told_with_the_last_lines(
    stage: Path, state: str, code: str, exits: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (stage / "states").write_text(f"run\n{state}\n")
    if code:
        (stage / "7.code").write_text(code)

    assert sweep() == exits
    err = capsys.readouterr().err
    assert "job 7 " in err
    assert exits == 130 or err.rstrip().endswith("half a line")


def test_a_result_that_was_there_before_is_not_that_of_the_job(
    stage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stage / "results" / "one").mkdir(parents=True)
    (stage / "results" / "one" / "sweep.json").write_bytes(GOLDEN.read_bytes())
    (stage / "states").write_text("NODE_FAIL|None\n")

    assert sweep() == 2  # the name is taken
    assert sweep("--force") == 4
    assert "NODE_FAIL" in capsys.readouterr().err


def test_ctrl_c_cancels_the_job(
    stage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (stage / "states").write_text("PENDING|Priority\nCANCELLED|None\n")
    presses = iter([KeyboardInterrupt])

    def press(seconds: float) -> None:
        for one in presses:
            raise one

    monkeypatch.setattr(slurm_queue.time, "sleep", press)

    assert sweep() == 130
    assert (stage / "cancelled").read_text() == "7\n"
    assert "Job 7 is cancelled" in capsys.readouterr().err


def test_what_slurm_refuses_is_told_in_its_words(
    stage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODE", "1")

    with pytest.raises(UsageError, match="sbatch: it failed"):
        slurm_queue.submit(job(stage))


def test_without_slurm_a_person_is_told_where_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(UsageError, match="no such command here"):
        slurm_queue.submit(job(tmp_path))


def test_a_job_on_another_cluster_is_asked_for_there(
    stage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAYS", "7;far")
    submitted = slurm_queue.submit(job(stage))

    assert submitted == submitted_job(stage / "r" / ".slurm", "7")
    assert (submitted.job, submitted.cluster) == ("7", "far")


def test_what_is_kept_of_a_job_may_be_damaged(tmp_path: Path) -> None:
    (tmp_path / "7.json").write_text("[]")

    with pytest.raises(ResultError, match="nothing is kept"):
        submitted_job(tmp_path, "7")


def test_slurm_that_never_answers_is_told(stage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted = slurm_queue.submit(job(stage))
    (stage / "states").write_text("silent\n" * 3)
    monkeypatch.setattr(slurm_queue, "SILENT_S", -1.0)

    assert state_of(submitted) is None
    with pytest.raises(slurm_queue.MeasureError, match="sfbench collect 7"):
        wait_for(submitted, lambda _: None)


def test_states_are_told_with_their_reason() -> None:
    assert JobState(state="PENDING", reason="Resources").text == "PENDING (Resources)"
    assert JobState(state="RUNNING", reason="None").text == "RUNNING"
    assert JobState(state=slurm_queue.GONE).over


def test_a_submitted_job_knows_its_folder() -> None:
    kept = SubmittedJob(job="7", cluster="", name="one", output="/r", kept="/r/.slurm", before_ns=0)

    assert kept.result_dir == Path("/r/one")
    assert not kept.has_result
