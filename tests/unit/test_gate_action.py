"""The composite action and the workflow to copy: what they pass on, and what they never do."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from sfbench.gating.checkouts.paths import touched
from sfbench.plan.options import GateSettings

GITHUB = Path(__file__).parents[2] / ".github"
ACTION = GITHUB / "actions" / "gate"
WORKFLOW = (GITHUB / "workflows" / "scaling-gate.yml").read_text()

STUB = """#!/bin/sh
printf '%s\\n' "$@" >"$(dirname "$0")/words"
printf '{"verdict": "%s"}' "$VERDICT"
exit "$CODE"
"""
INPUTS = {
    "TARGET": "train.py",
    "SCRIPT_ARGS": "",
    "BASE": "origin/main",
    "PATHS": "",
    "DEVICES": "2",
    "MARGIN": "8%",
    "BUDGET": "180",
    "OPTIONS": "",
    "FAIL_UNDECIDED": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """One run of the action's script."""

    code: int
    words: tuple[str, ...]
    """What the command was called with."""
    outputs: dict[str, str]
    said: str


def run(folder: Path, *, verdict: str = "pass", code: int = 0, **inputs: str) -> Ended:
    stub = folder / "sfbench"
    stub.write_text(STUB)
    stub.chmod(0o755)
    environment = {
        **os.environ, **INPUTS, **inputs, "SFBENCH": str(stub), "VERDICT": verdict,
        "CODE": str(code), "RUNNER_TEMP": str(folder), "GITHUB_OUTPUT": str(folder / "outputs"),
    }  # fmt: skip
    done = subprocess.run(
        [ACTION / "run.sh"], env=environment, capture_output=True, text=True, check=False
    )
    words, outputs = folder / "words", folder / "outputs"
    lines = outputs.read_text().splitlines() if outputs.exists() else []
    return Ended(
        code=done.returncode,
        words=tuple(words.read_text().splitlines()) if words.exists() else (),
        outputs=dict(line.split("=", 1) for line in lines),
        said=done.stdout + done.stderr,
    )


def test_inputs_become_options(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        PATHS="data/**,a.py",
        OPTIONS="--seconds 4",
        SCRIPT_ARGS="""--name 'two words' "$(touch ran)" `touch ran`""",
    )
    assert ended.code == 0, ended.said
    report = tmp_path / "scaling-gate"
    assert ended.words == (
        "gate", "train.py", "--base", "origin/main", "--devices", "2", "--margin", "8%",
        "--budget", "180", "--paths", "data/**,a.py", "--seconds", "4", "--json",
        "--markdown", f"{report}/gate.md", "--junit", f"{report}/gate.xml",
        "--report", f"{report}/gate.html", "--", "--name", "two words",
        "$(touch ran)", "`touch", "ran`",
    )  # fmt: skip
    assert ended.outputs == {"report": str(report), "verdict": "pass"}
    assert json.loads((report / "gate.json").read_text()) == {"verdict": "pass"}
    assert not list(tmp_path.rglob("ran"))


@pytest.mark.parametrize(("code", "fails"), [(0, 0), (1, 1), (2, 2), (3, 0), (4, 4), (5, 5)])
def test_exit_codes_are_passed_on_but_for_undecided(tmp_path: Path, code: int, fails: int) -> None:
    ended = run(tmp_path, verdict="some", code=code)
    assert (ended.code, ended.outputs["verdict"]) == (fails, "some")


def test_undecided_may_fail_the_job(tmp_path: Path) -> None:
    assert run(tmp_path, code=3, FAIL_UNDECIDED="true").code == 3


def test_without_a_base_nothing_is_run(tmp_path: Path) -> None:
    ended = run(tmp_path, BASE="")
    assert (ended.code, ended.words) == (2, ())
    assert "::error" in ended.said


def test_words_that_no_shell_reads_are_refused(tmp_path: Path) -> None:
    args = run(tmp_path, SCRIPT_ARGS="--name it's")
    options = run(tmp_path, OPTIONS='--seconds "4')
    for ended, named in ((args, "args"), (options, "options")):
        assert (ended.code, ended.words) == (2, ())
        assert (
            f"::error title=sfbench gate::the input {named} cannot be read as in a shell: "
            "No closing quotation" in ended.said
        )


def test_every_input_reaches_the_script_as_a_variable_only() -> None:
    text = (ACTION / "action.yml").read_text()
    inputs = re.findall(r"^  ([a-z-]+):$", text.split("outputs:")[0], re.MULTILINE)
    for name in inputs:
        assert f"${{{{ inputs.{name}" in text
    # an expression in a script would run what a branch is named
    scripts = re.findall(r"^ +run: (.*)$", text, re.MULTILINE)
    folder = "${{ github.action_path }}"
    assert scripts == [f"{folder}/run.sh", f"{folder}/comment.sh"]
    variables = re.findall(r"^ {8}([A-Z_]+): ", text, re.MULTILINE)
    label = {"ALLOW_LABEL", "ALLOWED"}
    told = {"COMMENT", "GH_TOKEN", "REPOSITORY", "NUMBER", "ARTIFACT", "REPORT"}
    assert set(variables) == {*INPUTS, "SFBENCH", *label, *told}


def test_the_workflow_measures_what_its_target_is_made_of() -> None:
    target, paths = re.findall(r"^ +(?:target|paths): ([^\s#]+)", WORKFLOW, re.MULTILINE)
    patterns = GateSettings.model_validate({"paths": paths}).paths
    assert touched([f"workloads/{target}.py"], patterns)
    assert not touched(["workloads/language.py", "README.md"], patterns)


def test_the_workflow_is_safe_for_forks() -> None:
    assert "\n  pull_request:\n" in WORKFLOW
    assert re.search(r"^ +pull_request_target", WORKFLOW, re.MULTILINE) is None
    assert "\npermissions:\n  contents: read\n" in WORKFLOW
    assert "${{ secrets" not in WORKFLOW
    assert "write" not in WORKFLOW
    assert "fetch-depth: 0" in WORKFLOW
    assert "persist-credentials: false" in WORKFLOW


def test_a_label_lets_a_regression_pass_and_nothing_else(tmp_path: Path) -> None:
    label = {"ALLOWED": "true", "ALLOW_LABEL": "slower-is-fine"}
    ended = run(tmp_path, verdict="fail", code=1, **label)
    assert ended.code == 0
    assert ended.outputs["verdict"] == "fail"
    assert "let through by the label slower-is-fine" in ended.said
    assert run(tmp_path, verdict="fail", code=1, ALLOWED="false").code == 1
    assert run(tmp_path, verdict="broken", code=5, **label).code == 5


GH = """#!/bin/sh
echo "$@" >>"$(dirname "$0")/calls"
case "$*" in
  *--paginate*) [ -z "$REFUSED" ] || exit 1; printf '%s' "$COMMENTS" ;;
  *) for word; do
       case "$word" in body=@*) cp "${word#body=@}" "$(dirname "$0")/body" ;; esac
     done ;;
esac
"""


def comment(folder: Path, **environment: str) -> tuple[str, list[str]]:
    """What the comment's script says, and how it called the host."""
    gh = folder / "gh"
    gh.write_text(GH)
    gh.chmod(0o755)
    around = {
        **os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "REPOSITORY": "a/b", "NUMBER": "7",
        "ARTIFACT": 'gate"$(x)', "REPORT": str(folder), "COMMENTS": "", "REFUSED": "",
        "COMMENT": "true", **environment,
    }  # fmt: skip
    done = subprocess.run(
        [ACTION / "comment.sh"], env=around, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    calls = folder / "calls"
    return done.stdout, calls.read_text().splitlines() if calls.exists() else []


def test_one_comment_is_made_and_then_kept_up_to_date(tmp_path: Path) -> None:
    (tmp_path / "gate.md").write_text("### a verdict\n")
    _, calls = comment(tmp_path)
    assert "--method POST repos/a/b/issues/7/comments" in calls[-1]
    body = (tmp_path / "body").read_text()
    assert body == "<!-- sfbench-gate: gate---x- -->\n### a verdict\n"
    _, calls = comment(tmp_path, COMMENTS="12\n13\n")
    assert "--method PATCH repos/a/b/issues/comments/12" in calls[-1]


def test_without_a_token_or_a_verdict_nothing_is_written(tmp_path: Path) -> None:
    assert comment(tmp_path, COMMENT="false") == ("", [])
    said, calls = comment(tmp_path)
    assert "nothing was measured" in said
    assert calls == []
    (tmp_path / "gate.md").write_text("### a verdict\n")
    said, calls = comment(tmp_path, REFUSED="1")
    assert "may not write one" in said
    assert len(calls) == 1
