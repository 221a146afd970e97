"""Who works in a folder is named by what the person can type: its run, or its task while the run has no id yet."""

from pathlib import Path

import pytest

from outlast.errors import RunRefused
from outlast.supervisor.guardian import workspace_lock


@pytest.mark.parametrize("mine", ["t", "other"])
def test_of_two_starts_at_once_the_loser_is_told_a_task_and_no_made_up_run(tmp_path: Path, mine: str) -> None:
    place = (tmp_path, tmp_path, "(new)")
    with (
        workspace_lock.occupied(*place, "t"),
        pytest.raises(RunRefused) as refused,
        workspace_lock.occupied(*place, mine),
    ):
        pass
    assert "(new)" not in f"{refused.value} {refused.value.hint}"
    assert "`outlast kill t`" in refused.value.hint
