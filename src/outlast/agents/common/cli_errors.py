"""The output of a program that refuses its own command line, and which lines of an output are prose.
Only for an agent that failed before its model said anything: a model may well speak of options.
"""

import re

CHARS_MAX = 32_768
WORDS_CHARS_MAX = 500

# Seen with an option that does not exist, or with a value that is none, of claude 2.1.197 and 2.1.325, codex 0.166, Kimi Code
# 2.1.0, kimi-cli 1.51, gemini 0.61, aider 0.86 and mini-swe-agent 2.4.6. opencode 1.18 prints its help, and no reason.
_REFUSED = re.compile(
    r"""^(?:
        error:\ (?:unknown\ option|option\ '[^'\n]*'\ argument|unexpected\ argument|invalid\ value|missing\ required) .*
      | Error:\ Invalid\ session\ ID .*
      | Unknown\ arguments?: .*
      | Invalid\ values:\n .*
      | [\w-]+:\ error:\ (?:unrecognized|ambiguous|argument) .*
      | [│|]\ No\ such\ option .*
      | (?P<help>opencode\ run\ \[message\.\.\])\s* )$""",
    re.MULTILINE | re.VERBOSE,
)
_DATA = ("{", "}", "[", "]", '"')


def refused(tail: bytes) -> str:
    """Why the program did not take its command line, in its own words; empty where it did not say so."""
    text = tail[-CHARS_MAX:].decode("utf-8", "replace")
    found = _REFUSED.search(text)
    if found is None:
        return ""
    if found["help"]:
        return "it printed its help: it does not take these words"
    return " ".join(found[0].strip("│| \t").split())[:WORDS_CHARS_MAX]


def prose(tail: bytes) -> bytes:
    """An output without the lines that are, or are part of, something for programs."""
    lines = tail.splitlines(keepends=True)
    return b"".join(
        line for line in lines if not line.lstrip().startswith(tuple(sign.encode() for sign in _DATA))
    )
