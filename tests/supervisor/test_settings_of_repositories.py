"""What the `outlast.toml` of a repository may do: it comes with a clone, and an agent at work can edit it."""

import re
from pathlib import Path

import pytest

from outlast import settings
from outlast.errors import BadSetting
from outlast.settings import KEYS
from outlast.store import plain_url
from tests.supervisor.host import Host
from tests.support.environment import TIMEOUT_S, Isolated

# A new setting is classified here, in KEYS and in docs/commands.md. "no" is right for whatever names a place or a command, or
# concerns more than runs of this repository; "stricter" for what a promise depends on.
CLASSES = {
    "no": {
        "store", "lease_s", "gc_older_than", "save_disk_budget_bytes", "worktree_setup", "loopback", "notify", "wake_apart_s",
        "gateway", "notify_desktop", "notify_webhook", "notify_webhook_secret", "notify_ntfy", "notify_ntfy_token", "notify_slack",
        "notify_quiet", "notify_urgent", "ui_url", "quiet", "json_lines",
    },
    "stricter": {"key_ttl_s", "save_where", "run_guard", "approve_within"},
    "adds": {"approve_classes", "approve_targets"},
    "sets it": {
        "check_timeout_s", "context_tokens_max", "save_branch", "save_big_file_bytes", "save_folder_files", "save_folder_bytes", "save_not_secret",
        "save_deadline_s", "worktree_copy", "warn_at", "idle_s", "restart_wait_s",
    },
}  # fmt: skip
DOCUMENTED = {
    "no": "no", "sets it": "sets it", "may lower it": "stricter", "may say `shadow`": "stricter", "may switch it on": "stricter",
    "may add to it": "adds",
}  # fmt: skip


def _class(key: settings.Key) -> str:
    if key.repository.adds:
        return "adds"
    return "no" if key.repository.why_not else "stricter" if key.repository.stricter else "sets it"


def test_of_every_setting_it_is_decided_what_the_file_of_a_repository_may_do_to_it() -> None:
    decided = {name: word for word, names in CLASSES.items() for name in names}
    assert {key.name: _class(key) for key in KEYS} == decided
    text = (Path(__file__).parents[2] / "docs/commands.md").read_text()
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| [^|]* \| ([^|]*) \|", text, re.MULTILINE)
    documented = {name: DOCUMENTED[word] for names, word in rows for name in re.findall(r"\w+", names)}
    assert documented == decided


@pytest.mark.parametrize("name", sorted(CLASSES["no"]))
def test_what_concerns_more_than_the_repository_is_refused_in_its_file(
    tmp_path: Path, state: Isolated, name: str
) -> None:
    default = next(key.default for key in KEYS if key.name == name)
    written = f"{name} = {default!r}".replace("False", "false")
    (tmp_path / "outlast.toml").write_text(written)
    with pytest.raises(BadSetting) as caught:
        settings.load(tmp_path)
    assert re.fullmatch(rf".*/outlast.toml: {name} .*, so only your own file may set it", str(caught.value))
    assert str(state.config_home) in str(caught.value.hint)


@pytest.mark.parametrize(
    ("own", "repository", "holds"),
    [
        ("", "key_ttl_s = 60", 60),
        ("", "key_ttl_s = 999999", 86_400),
        ("key_ttl_s = 10", "key_ttl_s = 60", 10),
        ("", "save_where = 'shadow'", "shadow"),
        ("save_where = 'shadow'", "save_where = 'repository'", "shadow"),
        ("", "[run]\nguard = true", True),
        ("", "[approve]\nclasses = ['deploy']", "deploy"),
        ("[approve]\nclasses = ['push']", "[approve]\nclasses = []", "push"),
        (
            "[approve]\nclasses = 'push, deploy'",
            "[approve]\nclasses = ['deploy', 'publish']",
            "push,deploy,publish",
        ),
        ("[approve]\ntargets = ['*prod*']", "[approve]\ntargets = 'x/*'", "*prod*,x/*"),
        ("[approve]\nwithin = '8h'", "[approve]\nwithin = '2d'", "8h"),
        ("[approve]\nwithin = '8h'", "[approve]\nwithin = '1h'", "1h"),
        ("[approve]\nwithin = '8h'", "[approve]\nwithin = '0s'", "8h"),
        ("[approve]\nwithin = '0s'", "[approve]\nwithin = '1h'", "1h"),
        ("[run]\nguard = true", "[run]\nguard = false", True),
    ],
)
def test_what_a_promise_depends_on_is_only_made_stricter(
    tmp_path: Path, state: Isolated, own: str, repository: str, holds: object
) -> None:
    (state.config_home / "outlast").mkdir(parents=True, exist_ok=True)
    (state.config_home / "outlast/config.toml").write_text(own)
    (tmp_path / "outlast.toml").write_text(repository)
    name = re.sub(r"\[(\w+)\]\n", r"\1_", repository).split(" ")[0]
    assert settings.load(tmp_path)[name] == holds


def test_a_stranger_cannot_have_a_clone_wake_runs_that_came_with_it(host: Host) -> None:
    work = host.repository("t")
    words = ("sh", "-c", "echo ran >> ../canary; test -e ../canary.second || kill -9 $PPID")
    host.start("t", *words, OUTLAST_STORE=str(work / "st")).wait(TIMEOUT_S)
    (host.folder / "canary").rename(host.folder / "canary.second")
    (work / "outlast.toml").write_text('store = "st"\n')
    answer = host("resume", "--all", cwd=work)
    assert (answer.code, len(answer.err.splitlines())) == (2, 2), answer.err
    assert "only your own file may set it" in answer.err
    assert host("ls", cwd=work).out.strip() == ""
    assert not (host.folder / "canary").exists()
    (work / "outlast.toml").unlink()
    assert host("resume", "--all", cwd=work, OUTLAST_STORE=str(work / "st")).code == 0
    assert (host.folder / "canary").exists(), "whoever names that store by hand wakes what lies in it"


def test_a_variable_that_is_relative_leads_to_nothing_in_a_repository(
    tmp_path: Path, state: Isolated, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted/outlast").mkdir(parents=True)
    (tmp_path / "planted/outlast/config.toml").write_text('notify = "touch canary"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", "planted")
    monkeypatch.setenv("XDG_STATE_HOME", "planted")
    assert settings.load()["notify"] == ""
    assert plain_url() == str(state.home / ".local/state/outlast")
