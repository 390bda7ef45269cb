"""How many cases of wrong input are tested, and how many are as they should: a table for docs/reliability.md."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree


def malformed(folder: Path) -> str:
    """A table of the cases of wrong input: a row a file of tests, what it asks, how many cases, how many are as they
    should."""
    lines = ["| wrong | cases | as it should |", "| --- | --- | --- |"]
    for path in sorted(Path(__file__).parent.glob("test_malformed*.py")):
        report = folder / f"{path.stem}.xml"
        words = ["-p", "no:cacheprovider", "-n0", f"--junitxml={report}", str(path)]
        subprocess.run([sys.executable, "-m", "pytest", *words], stdout=sys.stderr, check=False)
        cases = ElementTree.parse(report).getroot().findall(".//testcase")
        failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
        asked = re.match(r'"""(.*?):', path.read_text("utf-8"), re.DOTALL)
        assert asked is not None
        lines.append(f"| {asked[1][0].lower()}{asked[1][1:]} (`{path.name}`) | {len(cases)} | {len(cases) - failed} |")
    return "\n".join(lines)
