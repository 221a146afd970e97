"""What a program is given as a password is masked: in a command line, in a list of words, and in a body."""

import msgspec
import pytest

from outlast.core import secrets

PW = "p4sS-w0rd!"
# Each has the password in the place of {}; all else stays.
COMMANDS = [
    "curl -u me:{} https://h/x",
    "curl -su me:{} https://h/x",
    "curl -sSu me:{} https://h/x",
    "curl -ume:{} https://h/x",
    "curl --user 'me:{}' https://h/x",
    "curl --oauth2-bearer {} https://h/x",
    "curl -H 'Cookie: {}=1; b=c' https://h/x",
    "curl -b {}=a https://h/x",
    "curl -XPOST -d 'password={}&a=1' https://h/x",
    'curl --data-raw "a=1&token={}" https://h/x',
    "curl -F password={} https://h/x",
    "http POST h/x password={} name=x",
    "http -a me:{} GET h/x",
    "gh api graphql -f token={}",
    "wget --password={} https://h/x",
    "wget --post-data='pwd={}&a=1' https://h/x",
    "mysql -p{} -u root -e 'select 1'",
    "mysql --password={} app",
    "redis-cli -h far -a {} incr x",
    "redis-cli --pass '{}' incr x",
    "sshpass -p {} ssh me@h uptime",
    "sshpass -p{} ssh me@h uptime",
    "sudo sshpass -p '{}' scp a me@h:",
    "docker login -u me -p {} r.io",
    "docker login --password {} r.io",
    "helm registry login r.io -u me -p {}",
    "twine upload -u me -p {} dist/x",
    "mongosh -u me -p {} far",
    "sqlcmd -S h -U sa -P {}",
    "ldapsearch -x -D cn=a -w {}",
    "openssl enc -pass pass:{}",
    "lftp -u me,{} h",
    "smbclient -U me%{} //h/x",
    "gpg --batch --passphrase {} -d f",
    "svn commit --username me --password {}",
    "tool --password {}",
    "tool --api-key={}",
    "MYSQL_PWD={} mysql -u root",
    "DB_PASSWORD='{}' ./run",
    'MY_TOKEN="{}" ./run',
    "MY_TOKEN={} ./run",
    "sh -c 'mysql -p{} app'",
    "mysql -p{}; redis-cli -a {} ping",
]
QUOTED = [text for text in COMMANDS if "'{}'" in text or '"{}"' in text]


@pytest.mark.parametrize("text", COMMANDS)
def test_what_a_program_is_given_as_a_password_is_masked_and_all_else_stays(text: str) -> None:
    masked, names = secrets.mask(text.replace("{}", PW))
    assert PW not in masked
    assert names
    assert all(part in masked for part in text.split("{}") if part[:1] != "="), (
        masked
    )  # of a cookie the rest is masked too
    assert secrets.mask(masked)[0] == masked, "it is not masked again"


@pytest.mark.parametrize("text", QUOTED)
def test_a_password_with_a_blank_is_masked_as_a_whole(text: str) -> None:
    masked, _ = secrets.mask(text.replace("{}", "p4sS w0rd"))
    assert "p4sS" not in masked
    assert "w0rd" not in masked.replace("password", "")


@pytest.mark.parametrize(
    ("words", "secret"),
    [
        (["redis-cli", "-a", "p4 w", "incr", "a"], "p4 w"),
        (["/usr/bin/mysql", "-pp4 w", "app"], "p4 w"),
        (["sudo", "sshpass", "-p", "x y", "ssh", "h"], "x y"),
        (["curl", "-d", "password=a b&c=1", "https://h"], "a b"),
        (["curl", "-u", "me:abc", "https://h"], "abc"),
        (["docker", "login", "-p", "abc"], "abc"),
    ],
)
def test_in_a_list_of_words_the_value_of_an_option_is_masked_too(words: list[str], secret: str) -> None:
    masked, names = secrets.mask_words(words)
    assert names == {"password of a command"}
    assert not any(secret in word for word in masked)
    assert len(masked) == len(words)
    data = msgspec.json.encode({"args": {"words": words, "n": [1, "a"], "others": ["a", "b"]}})
    assert msgspec.json.decode(secrets.mask_json(data)[0]) == {
        "args": {"words": masked, "n": [1, "a"], "others": ["a", "b"]}
    }


def test_a_body_that_begins_with_a_password_is_masked() -> None:
    assert secrets.mask("password=Sup3rS3cretPw!&a=1")[0] == "password=[masked:secret of a form]&a=1"
    assert secrets.mask_json(b'{"input":"token=abcdef"}')[0] == b'{"input":"token=[masked:secret of a form]"}'


@pytest.mark.parametrize(
    "text",
    [
        "curl -s https://h/x -o f",
        "curl -u me https://h/x",
        "curl -b cookies.txt https://h/x",
        "curl -d 'a=1&b=2' https://h/x",
        "mysql -p -u root",
        "mysql -u root -e 'select 1'",
        "docker run -p 80:80 web",
        "docker compose -p app up",
        "mkdir -p a/b; cp -a x y",
        "redis-cli -h far -p 6379 incr x",
        "ssh -p 22 h uptime",
        "use --password to give one, or --token-file FILE",
        "the option --password is read from a file",
        "MY_TOKEN=$(cat f)",
        'MY_TOKEN="$OTHER"',
        "USE_TOKEN=true",
        "MAX_TOKEN=500",
        "--token=$TOKEN",
        "pwd=/home",
        "password=None if x else y",
        "curl to http or gh -- a - b",
    ],
)
def test_what_is_no_password_stays_as_it_is(text: str) -> None:
    assert secrets.mask(text) == (text, frozenset())
