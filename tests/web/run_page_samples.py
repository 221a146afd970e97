"""Documents for the pages of a run."""

import msgspec

from outlast.dashboard import documents
from outlast.operations.saves.diff import FileChange
from outlast.operations.saves.listing import Point
from outlast.workspace.types import LeftOut
from tests.web.sample_documents import (
    ago,
)

WORD = "w" * 10_000


HOSTILE = f"<script>alert(1)</script></pre>]]>\u202eevil\u202c\x00\x1b[31mred\x1b[0m \U0001f419 javascript:alert(2) {WORD}"


def saves_document(**changes: object) -> documents.Saves:
    point = Point(
        commit="9c1e4d2aa01", at=ago(9), kind="emergency", run="r1", task="1411", beat=3, reason="signal: SIGTERM from ada",
        changed=4, left_out=(LeftOut("core.dump", "too large", 5 << 30),), ref="refs/outlast/r1/e", folder="/srv/code/shop",
    )  # fmt: skip
    base = documents.Saves(run="r1", total=1, saves=(documents.SaveRow(point=point, restore="outlast restore 9c1e4d2aa01 --to ../n"),), page=1, pages=1)  # fmt: skip
    return msgspec.structs.replace(base, **changes)  # type: ignore[arg-type]


def diff_document(**changes: object) -> documents.Diff:
    lines = (
        documents.Line(kind="hunk", old=None, new=None, text="@@ -1,2 +1,2 @@"),
        documents.Line(kind="context", old=1, new=1, text="same"),
        documents.Line(kind="deleted", old=2, new=None, text="old <b>"),
        documents.Line(kind="added", old=None, new=2, text=HOSTILE),
    )
    files = (
        documents.FilePatch(file=FileChange("a <i>.py", "changed", 1, 1), lines=lines, cut=True),
        documents.FilePatch(file=FileChange("logo.png", "added"), lines=(), cut=False),
        documents.FilePatch(file=FileChange("empty", "added", 0, 0), lines=(), cut=False),
    )
    base = documents.Diff(
        run="r1", save="9c1e4d2aa01", against="before", other="77aa", at=ago(9), kind="emergency", reason="signal",
        files_total=9, lines_added=1, lines_deleted=1, files=files, cut=True, restore="outlast restore 9c1e4d2aa01 --to n",
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)  # type: ignore[arg-type]
