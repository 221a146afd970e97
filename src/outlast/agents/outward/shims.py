"""The shims on an agent's PATH: which programs have one, and the text of its script."""

import os
import pwd
import re
import shlex
from collections.abc import Sequence

from outlast.agents.outward import inside, rules
from outlast.agents.outward.rules import Rules
from outlast.agents.outward.shell import aliases, runners, tasks

_PATTERN = re.compile(r"[A-Za-z0-9_.:=+/@%,*?!\[\]-]+")


def shimmed_programs(known: Rules | None = None) -> list[str]:
    """Every program that has an outward class, or starts others where no shim is found, sorted."""
    known = known or rules.load()
    return sorted(
        name
        for name in known.programs | runners.SHIMMED | tasks.PROGRAMS
        if triggers(name, known) and _PATTERN.fullmatch(name) and "/" not in name
    )


def triggers(program: str, known: Rules | None = None) -> tuple[str, ...]:
    """Patterns of sh: a call with no word that matches one of them is not outward. `*`: any call may be.

    A shim looks at its words in plain sh. A call that cannot be outward becomes the real program at once; only one that
    might be goes to the client, which classifies it. So a trigger may be too wide, never too narrow.
    """
    known = known or rules.load()
    found = {word for rule in known.of_program(program) if not rule.local for word in rule.triggers}
    found |= {*runners.triggers(program), *tasks.triggers(program)}
    if any(not _PATTERN.fullmatch(word) for word in found) or found & {"*", "**"}:
        return ("*",)
    return tuple(sorted(found))


_LOOK = """\
IFS=:
set -f
for outlast_place in $PATH; do
    case $outlast_place in
        {folder}) outlast_real={real} outlast_behind=yes ;;
        /*) [ "$outlast_behind" ] && [ -f "$outlast_place/{program}" ] && [ -x "$outlast_place/{program}" ] && outlast_real=$outlast_place/{program} outlast_behind= ;;
    esac
done
"""


# A first word that is no command of the program may be an alias, or the beginning of a command: only the client can tell.
_FIRST_WORD = """\
outlast_value=
for outlast_word do
    case $outlast_value$outlast_word in
        +*) outlast_value= ;;
        {values}) outlast_value=: ;;
        -*|:*) outlast_value= ;;
{commands}        [A-Za-z]*) {client} "$@" ;;
        *) break ;;
    esac
done
"""


# The command stands first, behind options that every reader of these words reads alike: by that one, or by it and the
# next word, a call may surely stay inside, whatever follows. Anything else is looked at word by word, below.
_BEGINNING = """\
outlast_first= outlast_skip=
for outlast_word do
    case $outlast_skip$outlast_first in
        :) outlast_skip= ;;
        '')
            case $outlast_word in
{firsts}
                *) break ;;
            esac ;;
        *)
            case $outlast_first:$outlast_word in
                {outside}) break ;;
                *) exec "$outlast_real" "$@" ;;
            esac ;;
    esac
done
"""

_HIDDEN = """\
for outlast_word in "$1" "$2" "$3"; do
    case $outlast_word in {hidden}) {client} "$@" ;; esac
done
"""

_FILES = """\
for outlast_file in {files}; do
    [ "$outlast_file" ] && [ -e "$outlast_file" ] && {{ {client} "$@"; }}
done
"""

# curl says its method by an option: one of these asks only, whichever other words there are.
_CURL_METHOD = """\
outlast_first=
for outlast_word do
    case $outlast_first$outlast_word in
        X:GET|X:HEAD|X:OPTIONS) outlast_first= ;;
        X:*) {client} "$@" ;;
        -X|--request|-[sSfLkgvi]X|-[sSfLkgvi][sSfLkgvi]X|-[sSfLkgvi][sSfLkgvi][sSfLkgvi]X) outlast_first=X: ;;
        -XGET|-XHEAD|-XOPTIONS) ;;
        {triggers}) {client} "$@" ;;
    esac
done
[ -z "$outlast_first" ] || {{ {client} "$@"; }}
exec "$outlast_real" "$@"
"""


_NOT_FOUND = """\
[ "$outlast_real" ] || {{ printf '%s\\n' '{program}: command not found' >&2; exit 127; }}
"""

# A shell whose `exec` finds no such program says so in words of its own, and which of its lines it was.
_CHECKED = """\
asked() {{
    for outlast_needed in {python} {client}; do
        [ -e "$outlast_needed" ] && continue
        printf 'outlast: `{program}` was not run: it is not on record, for %s is gone\\n' "$outlast_needed" >&2
        exit 125
    done
}}
"""


# The client is imported, not run: a file that was emptied or cut off would run to its end and exit with 0, as if the
# program had. Its last line defines `ENTRY`, so only a whole file has it.
_CLIENT = """\
import sys
path = sys.argv.pop(1)
folder, _, name = path.rpartition("/")
sys.path.append(folder)
try:
    entry = __import__(name.removesuffix(".py")).ENTRY
except BaseException:
    print("outlast: `{program}` was not run: it is not on record, for", path, "is damaged", file=sys.stderr)
    sys.exit(125)
sys.exit(entry(sys.argv[1:]))
"""


def shim_script(
    program: str,
    real_path: str,
    python: str,
    client_path: str,
    known: Rules | None = None,
    *,
    folder: str = "",
    given: Sequence[str] = (),
) -> str:
    """The text of the shim: the real program with its words, or the client's `ENTRY` with GIVEN, PROGRAM, REAL and them.

    The real program is the first that lies behind the shims' `folder` on the PATH of the caller, which may have another
    one than we had; where there is none, `real_path`; where that is empty, the shim says "command not found" and ends with 127. All paths are absolute, so that the shim never finds itself. If the
    client or its Python is gone, or the client is not whole, the call is refused.
    """
    for path in (real_path or "/", python, client_path):
        if not os.path.isabs(path) or "\0" in path:
            raise ValueError(f"not an absolute path: {path!r:.100}")
    real = shlex.quote(real_path)
    first = [python, "-I", "-S", "-B", "-c", _CLIENT.format(program=program), client_path, *given, program]
    client = f'asked; exec {shlex.join(first)} "$outlast_real"'
    head = (
        f"#!/bin/sh\n# outlast: lets {program} through at once unless one of its words may make it outward.\n"
        f"outlast_real={real} outlast_behind=\n"
    )
    head += _CHECKED.format(program=program, python=shlex.quote(python), client=shlex.quote(client_path))
    if folder:
        head += _LOOK.format(folder=shlex.quote(folder), real=real, program=program)
    if not real_path:
        head += _NOT_FOUND.format(program=program)
    return head + decision(program, client, known)


def own_home() -> str:
    """The home of this user as the system knows it: curl, wget and others look there when no variable names one."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/"


def decision(program: str, client: str, known: Rules | None = None, home: str | None = None) -> str:
    """Shell text that runs the real program where the call surely stays inside, and CLIENT with its words otherwise.

    `home`: as `own_home` says, if it is not given.
    """
    known = known or rules.load()
    looked_for = " | ".join(triggers(program, known))
    text = ""
    if files := inside.files(program, own_home() if home is None else home):
        text += _FILES.format(files=" ".join(f'"{file}"' for file in files), client=client)
    if found := inside.beginnings(program, known):
        if found.hidden:
            text += _HIDDEN.format(hidden="|".join(found.hidden), client=client)
        firsts = (
            ("|".join(found.values), "outlast_skip=:"),
            ("--?*=*", ""),
            ("|".join(found.mixed), "outlast_first=$outlast_word"),
            ("*[!A-Za-z0-9_:-]*|-*", "break"),
            ("|".join(found.inside), 'exec "$outlast_real" "$@"'),
        )
        text += _BEGINNING.format(
            firsts="\n".join(f"                {each}) {then} ;;" for each, then in firsts if each),
            outside="|".join(["*:", "*:-*", *found.outside]),
        )
    if looked_for == "*":
        return f'{text}{client} "$@"\n'
    if program == "curl":
        return text + _CURL_METHOD.format(triggers=looked_for, client=client)
    if program in aliases.COMMANDS:
        text += _FIRST_WORD.format(
            values="|".join(sorted(aliases.VALUES[program])),
            commands=f"        {'|'.join(sorted(own))}) break ;;\n" if (own := aliases.own(program)) else "",
            client=client,
        )
    return (
        f"{text}for outlast_word do\n"
        f"    case $outlast_word in\n"
        f'        {looked_for}) {client} "$@" ;;\n'
        f"    esac\n"
        f"done\n"
        f'exec "$outlast_real" "$@"\n'
    )
