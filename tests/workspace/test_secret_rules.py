"""Which names of untracked files are taken for secrets, and which are not."""

import pytest

from outlast.workspace import rules
from tests.workspace.workspace import Workspace

SECRET = """
    .env .env.local .env.production deep/.env .env~ .env-prod .env_prod .env.bak .envrc
    prod.env docker.env deep/PROD.env config/app.prod.env .env.local.bak
    id_rsa id_rsa_work id_ed25519-github id_ecdsa_sk id_rsa.old .ssh/work_key home/.ssh/deploy .ssh/id_rsa
    kubeconfig prod.kubeconfig prod-kubeconfig.yaml kubeconfig.yml .kube/config
    .vault-token .terraformrc credentials .aws/credentials credentials.json tokens.json secret.yaml
    .netrc _deep/.npmrc .pypirc .pypirc.bak .npmrc~ .git-credentials .pgpass .codex/auth.json
    key.pem server.key server.key.old a.p12 store.jks terraform.tfvars x.tfstate x.tfstate.backup
"""
HARMLESS = """
    environment.py env.py env.local.md .environment .envoy.yaml .env/bin/python env/index.ts environ
    .env.example .env.sample .env.template .env.dist .env.default .env.defaults .env.local.example .env-example
    example.env sample.env prod.example.env deep/template.env
    token.py tokens.ts token tokens key.py keys.ts monkey.txt monkey key turkey.md keyboard.json secret.py secrets.rs
    credentials.py credentials_test.go credentials/readme.md my_credentials.ts
    id_rsa.pub id_rsa_work.pub id_rsa_parser.py id_rsa_test.go id_rsa.md grid_rsa solid_rsa.txt
    .ssh/known_hosts .ssh/known_hosts.old .ssh/config .ssh/authorized_keys .ssh/work_key.pub .ssh/config.d/work ssh/main.c
    kubeconfig.py kubeconfig_test.go mykubeconfig.go kube/config .kube/config.md
    locales/en/auth.json auth.json vault-token.md envrc.md direnv.toml venv.txt a.envelope b.pemx
"""


@pytest.mark.parametrize("name", SECRET.split())
def test_this_name_is_a_secret(name: str) -> None:
    assert rules.is_secret_name(name.encode())


@pytest.mark.parametrize("name", HARMLESS.split())
def test_this_name_is_no_secret(name: str) -> None:
    assert not rules.is_secret_name(name.encode())


def test_a_path_as_long_as_any_is_judged_in_no_time() -> None:
    """A pattern that tries every way through a name would not come to an end here."""
    for part in (b"example", b".env", b"_kubeconfig", b"id_rsa_", b".a", b"-"):
        name = (part * 255)[:255]
        assert not rules.is_secret_name(b"/".join([name] * 16) + b"/x.txt")
        rules.is_secret_name(b"/".join([name] * 16))


def test_names_with_a_secret_go_into_no_save_and_come_back_when_asked(place: Workspace) -> None:
    names = ["prod.env", ".envrc", ".env~", "kubeconfig", "credentials", "id_rsa_work", ".ssh/work_key"]
    for name in names:
        place.write(name, f"hush {name}".encode())
    place.write(".env.example", b"KEY=")
    saved = place.save()
    assert sorted(left.path for left in saved.left_out) == sorted(names)
    assert place.content(saved, ".env.example") == b"KEY="
    place.empty()
    place.restore(saved, with_secrets=True)
    assert all((place.folder / name).read_text() == f"hush {name}" for name in names)


# -- settings of repositories inside -----------------------------------------------------------------------------------

TOKEN = "ghp_0123456789abcdef0123456789abcdef0123"
WITH_CREDENTIALS = {
    f'[remote "o"]\n\turl = https://oauth2:{TOKEN}@github.com/x/y\n': '[remote "o"]\n\turl = https://github.com/x/y\n',
    f"\turl = https://{TOKEN}@github.com/x/y\n": "\turl = https://github.com/x/y\n",
    "\turl = https://glpat-abc@gitlab.com/x\n": "\turl = https://gitlab.com/x\n",
    '[http "https://h"]\n\textraheader = AUTHORIZATION: basic eDp5\n[core]\n': '[http "https://h"]\n[core]\n',
    "[http] extraHeader = x: \\\n  more\n[a]\n": "[http][a]\n",
    "[http]\n\tproxy = http://me:hush@proxy:3128\n": "[http]\n\tproxy = http://proxy:3128\n",
    "[sendemail]\n\tsmtpPass = hush\n\tto = a\n": "[sendemail]\n\tto = a\n",
    "[github]\n\toauth-token = hush\n\ttoken=hush\n": "[github]\n",
    '[credential]\n\thelper = "!f() { echo password=hush; }; f"\n': "[credential]\n",
    f'[url "https://me:{TOKEN}@h/"]\n\tinsteadOf = https://h/\n': '[url "https://h/"]\n\tinsteadOf = https://h/\n',
}
WITHOUT = [
    "[remote]\n\turl = git@github.com:x/y\n",
    "[remote]\n\turl = ssh://git@github.com:22/x/y\n",
    "[remote]\n\turl = https://me@bitbucket.org/x/y.git\n",
    "[core]\n\trepositoryformatversion = 0\n\tpasskey.md\n[branch \"token\"]\n\tremote = origin\n",
    "[credential]\n\thelper = store\n\tusername = me\n",
    "[core]\n\teditor = vim\n[remote]\n\turl = https://h:8080/x@y\n\turl = /srv/a:b@c\n",
]  # fmt: skip


@pytest.mark.parametrize("text", WITH_CREDENTIALS)
def test_settings_lose_their_credentials_and_nothing_else(text: str) -> None:
    assert rules.without_credentials(b"config", text.encode()).decode() == WITH_CREDENTIALS[text]


@pytest.mark.parametrize("text", WITHOUT)
def test_settings_without_credentials_stay_as_they_are(text: str) -> None:
    assert rules.without_credentials(b"config", text.encode()).decode() == text


def test_branches_may_be_called_anything() -> None:
    for name in (b"refs/heads/config", b"refs/remotes/o/credentials", b"logs/refs/heads/netrc", b"modules/a/refs/tags/config"):  # fmt: skip
        assert not rules.may_hold_credentials(name)
    for name in (b"config", b"config.worktree", b"modules/a/config", b"credentials", b".netrc", b"my.netrc"):
        assert rules.may_hold_credentials(name)
