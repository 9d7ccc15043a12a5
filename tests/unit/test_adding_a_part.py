"""A part of the step with its diagnosis is added in five files, and everything else follows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CAUSE = '''"""idle-padding: a part of the step that this test makes up."""

from sfbench.analyze.parts import Part
from sfbench.common.schema import Diagnosis
from sfbench.diagnose.case import Case
from sfbench.diagnose.recoverable import regain
from sfbench.diagnose.severity import Judgement


def diagnose_padding(case: Case, part: Part, judged: Judgement) -> Diagnosis:
    """Whatever is large enough."""
    return Diagnosis(
        id="idle-padding", devices=case.devices, severity=judged.severity, rank=None,
        regain=regain(case, part), evidence={"padding_s": case.seconds(part)}, advice=("Pad less.",)
    )
'''
EDITS = {
    "analyze/parts.py": (
        "PARTS = (COMPUTE,",
        'PADDING = Part(id="padding", label="idle padding", heading="padding", colour="#123456",'
        ' dark_colour="#654321", formula="train - cached", rungs=("cached",))\n\n'
        "PARTS = (COMPUTE, PADDING,",
    ),
    "common/schema.py": (
        "    stalls: Share =",
        "    padding: Share = Share()\n    stalls: Share =",
    ),
    "diagnose/causes.py": (
        "    (DATA, diagnose_data_loader),",
        "    (parts.PADDING, padding.diagnose_padding),\n    (DATA, diagnose_data_loader),",
    ),
    "report/cause_words.py": (
        '    "data-loader-starvation": CauseWords(',
        '    "idle-padding": CauseWords(title="Idle padding", rule="Padding takes time.",'
        ' basis="made up", figures={"padding_s": "padding takes per step"}),\n'
        '    "data-loader-starvation": CauseWords(',
    ),
}
"""What is changed in four files; the cause itself is the fifth."""
IMPORTS = "from sfbench.analyze import parts\nfrom sfbench.diagnose import padding\n"
RUN = """
import json, sys
from dataclasses import asdict, replace
from pathlib import Path
from ladder import Times, diagnosed, launched
from sfbench.collect.result import load_result
from sfbench.gating.gate_report import nothing_measured
from sfbench.report.html import render_html
from sfbench.report.table import render_table
found = diagnosed(
    launched(0, Times(cached=[0.1])), launched(1, Times(cached=[0.1] * 2, train=[0.2] * 2))
)
result = replace(load_result(Path(sys.argv[1])), points=found.points, diagnoses=found.diagnoses)
print(json.dumps({
    "share": asdict(found.points[-1].time_share)["padding"]["value"],
    "causes": [d.id for d in found.diagnoses],
    "gate": "padding" in nothing_measured(),
    "table": render_table(result, width=200, color=False),
    "page": render_html([result]),
}))
"""


def test_a_part_and_its_diagnosis_take_five_files(tmp_path: Path) -> None:
    # GIVEN a copy of the package with a new part, edited as CONTRIBUTING.md says
    package = tmp_path / "sfbench"
    shutil.copytree(ROOT / "sfbench", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "diagnose" / "padding.py").write_text(CAUSE)
    for file, (old, new) in EDITS.items():
        text = (package / file).read_text()
        assert text.count(old) == 1, file
        text = text.replace(old, new)
        if file == "diagnose/causes.py":
            text = text.replace("import pandas as pd\n", f"import pandas as pd\n\n{IMPORTS}", 1)
        (package / file).write_text(text)

    # WHEN launches are analyzed, diagnosed and shown
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parent)])
    golden = Path(__file__).parents[1] / "golden" / "sweep-schema1.json"
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(golden)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)

    # THEN share, diagnosis, table, page and gate know it
    assert 0.4 < seen["share"] < 0.6
    assert "idle-padding" in seen["causes"]
    assert seen["gate"]
    assert "padding" in seen["table"]
    assert all(text in seen["page"] for text in ("idle padding", "--padding: #123456", "Pad less."))
