"""Generated parts of pages in docs/: the text between <!-- NAME --> and <!-- end of NAME -->."""

import pathlib
import re

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def put(name, text, page="suites.md"):
    path = DOCS / page
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before = path.read_text()
    assert begin in before and end in before, f"{path} has no part {name}"
    path.write_text(re.sub(f"{re.escape(begin)}.*{re.escape(end)}", lambda _: f"{begin}\n{text}{end}", before, flags=re.DOTALL))
