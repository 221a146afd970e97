"""Worker processes for the trials: forked from this warm one, each with a witness of its own."""

import json
import os
import selectors
import signal
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from outlast.chaos.eval.trial import Bench

Work = Callable[[Bench, Any], Iterator[Any]]


class PoolBroken(Exception):
    """A worker died or failed; the message has its own words."""


class _Worker(NamedTuple):
    pid: int
    orders: IO[bytes]
    answers: IO[bytes]


def run(units: Sequence[Any], work: Work, folder: Path, jobs: int) -> Generator[Any, None, None]:
    """Yield the results of `work(bench, unit)` for every unit, as they come; units and results are JSON."""
    waiting = list(reversed(units))
    workers: list[_Worker] = []
    for n in range(min(jobs, len(units))):
        workers.append(_start(folder / f"job{n}", work, workers))
    try:
        with selectors.DefaultSelector() as selector:
            for worker in workers:
                selector.register(worker.answers, selectors.EVENT_READ, worker)
                _order(worker, waiting)
            while selector.get_map():
                for key, _ in selector.select():
                    answer = _answer(key.data)
                    if answer["what"] == "yield":
                        yield answer["value"]
                    elif answer["what"] == "failed":
                        raise PoolBroken(answer["value"])
                    elif not _order(key.data, waiting):
                        selector.unregister(key.fileobj)
    finally:
        for worker in workers:
            worker.orders.close()
            worker.answers.close()
            os.waitpid(worker.pid, 0)


def _start(folder: Path, work: Work, others: list[_Worker]) -> _Worker:
    orders_in, orders_out = os.pipe()
    answers_in, answers_out = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(orders_out)
        os.close(answers_in)
        for other in others:  # else a worker would keep its siblings from seeing that the parent is gone
            other.orders.close()
            other.answers.close()
        try:
            _serve(folder, work, os.fdopen(orders_in, "rb"), os.fdopen(answers_out, "wb"))
        finally:
            os._exit(0)
    os.close(orders_in)
    os.close(answers_out)
    # Unbuffered, so that `select` does not wait for a line that is already in a buffer.
    return _Worker(pid, os.fdopen(orders_out, "wb", 0), os.fdopen(answers_in, "rb", 0))


def _serve(folder: Path, work: Work, orders: IO[bytes], answers: IO[bytes]) -> None:
    def say(what: str, value: Any = None) -> None:
        answers.write(json.dumps({"what": what, "value": value}).encode() + b"\n")
        answers.flush()

    try:
        folder.mkdir()
        bench = Bench(folder)
        try:
            while order := orders.readline():
                for value in work(bench, json.loads(order)):
                    say("yield", value)
                say("next")
        finally:
            bench.close()
    except (BrokenPipeError, KeyboardInterrupt):
        return  # nobody listens any more
    except BaseException:
        say("failed", traceback.format_exc())


def _order(worker: _Worker, waiting: list[Any]) -> bool:
    if not waiting:
        return False
    worker.orders.write(json.dumps(waiting.pop()).encode() + b"\n")
    return True


def _answer(worker: _Worker) -> dict[str, Any]:
    line = worker.answers.readline()
    if not line.endswith(b"\n"):
        return {"what": "failed", "value": f"worker {worker.pid} is gone"}
    answer: dict[str, Any] = json.loads(line)
    return answer
