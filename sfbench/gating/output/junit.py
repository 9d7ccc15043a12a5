"""A report as JUnit XML, which most build servers show. Pure."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from sfbench.common.units import things
from sfbench.gating.gate_report import GateReport
from sfbench.gating.output.gate_rows import rows

_UNFIT = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot carry: control characters of a log, say."""


def render_junit(report: GateReport) -> str:
    """One suite with one test case. Not decided and not touched are skipped, with the text."""
    case = ET.Element(
        "testcase",
        name=_fit(
            f"{report.target} at {things(report.devices, 'device')} against {report.against}"
        ),
        classname="sfbench.gate",
        time=f"{report.duration_s:.3f}",
    )
    failed = report.verdict == "fail"
    error = report.verdict in {"broken", "not-measured"}
    skipped = report.verdict in {"inconclusive", "contaminated", "not-touched"}
    for tag, applies in (("failure", failed), ("error", error), ("skipped", skipped)):
        if applies:
            element = ET.SubElement(case, tag, message=_fit(_message(report)), type=report.verdict)
            element.text = _fit("\n".join(report.reasons))
    ET.SubElement(case, "system-out").text = _fit(_figures(report))
    suite = ET.Element(
        "testsuite",
        name="sfbench gate",
        tests="1",
        failures=str(int(failed)),
        errors=str(int(error)),
        skipped=str(int(skipped)),
        time=f"{report.duration_s:.3f}",
    )
    suite.append(case)
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _message(report: GateReport) -> str:
    """If there are no figures, why."""
    why = report.reasons[0].splitlines()[:1] if report.base is None and report.reasons else []
    return " ".join([report.headline, *why])


def _figures(report: GateReport) -> str:
    lines = [f"{row.name}: {row.base} -> {row.candidate} {row.change}" for row in rows(report)]
    return "\n".join([report.headline, *lines, *(f"warning: {w}" for w in report.warnings)])


def _fit(text: str) -> str:
    return _UNFIT.sub("?", text)
