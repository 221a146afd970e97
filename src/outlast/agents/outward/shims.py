"""The shims on an agent's PATH: which programs have one, and the text of its script."""

import os
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
for place in $PATH; do
    case $place in
        {folder}) real={real} behind=yes ;;
        /*) [ "$behind" ] && [ -f "$place/{program}" ] && [ -x "$place/{program}" ] && real=$place/{program} behind= ;;
    esac
done
"""


# A first word that is no command of the program may be an alias, or the beginning of a command: only the client can tell.
_FIRST_WORD = """\
value=
for word do
    case $value$word in
        +*) value= ;;
        {values}) value=: ;;
        -*|:*) value= ;;
        {commands}) break ;;
        [A-Za-z]*) {client} "$@" ;;
        *) break ;;
    esac
done
"""


# The command stands first, behind options that every reader of these words reads alike: by that one, or by it and the
# next word, a call may surely stay inside, whatever follows. Anything else is looked at word by word, below.
_BEGINNING = """\
first= skip=
for word do
    case $skip$first in
        :) skip= ;;
        '')
            case $word in
{firsts}
                *) break ;;
            esac ;;
        *)
            case $first:$word in
                {outside}) break ;;
                *) exec "$real" "$@" ;;
            esac ;;
    esac
done
"""

_HIDDEN = """\
for word in "$1" "$2" "$3"; do
    case $word in {hidden}) {client} "$@" ;; esac
done
"""

_FILES = """\
for file in {files}; do
    [ "$file" ] && [ -e "$file" ] && {{ {client} "$@"; }}
done
"""

# curl says its method by an option: one of these asks only, whichever other words there are.
_CURL_METHOD = """\
first=
for word do
    case $first$word in
        X:GET|X:HEAD|X:OPTIONS) first= ;;
        X:*) {client} "$@" ;;
        -X|--request|-[sSfLkgvi]X|-[sSfLkgvi][sSfLkgvi]X|-[sSfLkgvi][sSfLkgvi][sSfLkgvi]X) first=X: ;;
        -XGET|-XHEAD|-XOPTIONS) ;;
        {triggers}) {client} "$@" ;;
    esac
done
[ -z "$first" ] || {{ {client} "$@"; }}
exec "$real" "$@"
"""


_NOT_FOUND = """\
[ "$real" ] || {{ printf '%s\\n' '{program}: command not found' >&2; exit 127; }}
"""

# A shell whose `exec` finds no such program says so in words of its own, and which of its lines it was.
_CHECKED = """\
asked() {{
    for needed in {python} {client}; do
        [ -e "$needed" ] && continue
        printf 'outlast: `{program}` was not run: it is not on record, for %s is gone\\n' "$needed" >&2
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
    client = f'asked; exec {shlex.join(first)} "$real"'
    head = (
        f"#!/bin/sh\n# outlast: lets {program} through at once unless one of its words may make it outward.\n"
        f"real={real} behind=\n"
    )
    head += _CHECKED.format(program=program, python=shlex.quote(python), client=shlex.quote(client_path))
    if folder:
        head += _LOOK.format(folder=shlex.quote(folder), real=real, program=program)
    if not real_path:
        head += _NOT_FOUND.format(program=program)
    return head + decision(program, client, known)


def decision(program: str, client: str, known: Rules | None = None) -> str:
    """Shell text that runs the real program where the call surely stays inside, and CLIENT with its words otherwise."""
    known = known or rules.load()
    looked_for = " | ".join(triggers(program, known))
    text = ""
    if files := inside.FILES.get(program):
        text += _FILES.format(files=" ".join(f'"{file}"' for file in files), client=client)
    if found := inside.beginnings(program, known):
        if found.hidden:
            text += _HIDDEN.format(hidden="|".join(found.hidden), client=client)
        firsts = (
            ("|".join(found.values), "skip=:"),
            ("--?*=*", ""),
            ("|".join(found.mixed), "first=$word"),
            ("*[!A-Za-z0-9_:-]*|-*", "break"),
            ("|".join(found.inside), 'exec "$real" "$@"'),
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
            commands="|".join(sorted(aliases.COMMANDS[program])),
            client=client,
        )
    return (
        f"{text}for word do\n"
        f"    case $word in\n"
        f'        {looked_for}) {client} "$@" ;;\n'
        f"    esac\n"
        f"done\n"
        f'exec "$real" "$@"\n'
    )
