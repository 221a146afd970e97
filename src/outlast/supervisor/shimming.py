"""What a shim runs when its program may reach outside: asks the supervisor first, then runs the real one and tells.

    python -I -S shimming.py PROGRAM REAL ARGUMENTS…

A supervisor that does not answer refuses: what is not on record does not happen. What only reads never gets here, the
shim itself sees to that (`agents.outward`).
"""

import os
import subprocess
import sys

REFUSED = 125
LIMIT_S = 5.0


def main(program: str, real: str, arguments: list[str]) -> int:
    """The exit code of the program, or 125 where it was not run."""
    try:
        return _asked(real, [program, *arguments])
    except Exception as error:  # what is not on record does not happen
        return _refuse([program], f"{type(error).__name__}: {error}")


def _asked(real: str, words: list[str]) -> int:
    import site

    site.main()  # -S left out where our libraries lie
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))
    from outlast import settings
    from outlast.errors import OutlastError
    from outlast.supervisor import environment
    from outlast.supervisor.connection import connect
    from outlast.supervisor.wire import Order, Report, Shim

    try:
        there = connect(settings.variable(environment.SOCKET), LIMIT_S)
        attempt = settings.variable(environment.ATTEMPT)
        there.send(Shim(attempt=attempt, words=tuple(map(_text, words)), cwd=_text(_cwd())))
        order = there.receive()
        if not isinstance(order, Order) or order.do != "run":
            return _refuse(words, order.reason if isinstance(order, Order) else "its answer makes no sense")
    except OutlastError as error:
        return _refuse(words, f"it is not on record: {error}")
    code = _run(real, words)
    try:
        there.send(Report(exit_code=code))
        there.receive()  # the outcome is durable before whoever called us goes on
    except OutlastError as error:
        _say(f"outlast: what came of `{words[0]}` is not on record: {error}")
    return code


def _run(real: str, words: list[str]) -> int:
    try:
        code = subprocess.run([words[0], *words[1:]], executable=real).returncode
    except OSError as error:
        _say(f"outlast: {real}: {error.strerror}")
        return 126
    return code if code >= 0 else 128 - code


def _refuse(words: list[str], reason: str) -> int:
    _say(f"outlast: `{words[0]}` was not run: {reason}")
    return REFUSED


def _say(text: str) -> None:
    os.write(2, f"{text}\n".encode(errors="replace"))


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "/"


def _text(word: str) -> str:
    return word.encode(errors="backslashreplace").decode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
