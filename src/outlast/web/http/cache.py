"""Answers that several ask for at once are made once: twenty pages that an event wakes do not mean twenty renderings."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from outlast.web.http.responses import Answer
from outlast.web.timing import Timing

ANSWERS_MAX = 64
ANSWERS_BYTES_MAX = 8 << 20


class _Making:
    """An answer that is being made or was made just now, as of an event of the store."""

    def __init__(self, number: int) -> None:
        self.begun_s, self.number = time.monotonic(), number
        self.ready = threading.Event()
        self.answer: Answer | None = None

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.begun_s

    @property
    def bytes(self) -> int:
        """The answer's size, counted twice because a compressed copy may exist."""
        return 0 if self.answer is None else 2 * len(self.answer.body)


class AnswerCache:
    """The answers of the last second, each under the key that it depends on; drops large and old ones."""

    def __init__(self, timing: Timing | None = None) -> None:
        self._timing = timing or Timing.current()
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, _Making] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Answer], *, number: int = 0, wanted: int = 0) -> Answer:
        """The answer under this key, no older than a second. An error is not kept: each caller gets its own.

        `number` is the newest event there is; who asks is content with an answer as of the one `wanted`.
        """
        with self._lock:
            found = self._answers.get(key)
            mine = found is None or found.number < min(wanted, number) or found.age_s > self._timing.fresh_s
            if mine:
                found = self._answers[key] = _Making(number)
                self._answers.move_to_end(key)
        assert found is not None, "found or made"
        if not mine:
            found.ready.wait(self._timing.answer_wait_s)
            return found.answer or make()
        try:
            found.answer = make()
        finally:
            found.ready.set()
            with self._lock:
                if found.answer is None and self._answers.get(key) is found:
                    del self._answers[key]
                self._let_go()
        return found.answer

    def _let_go(self) -> None:
        """Drop answers that are too old to be given, then the oldest, until little is left. The caller holds the lock."""
        made = [(key, each) for key, each in self._answers.items() if each.answer is not None]
        held = sum(each.bytes for _, each in made)
        for key, each in made:
            if (
                each.age_s <= self._timing.fresh_s
                and held <= ANSWERS_BYTES_MAX
                and len(self._answers) <= ANSWERS_MAX
            ):
                continue
            held -= each.bytes
            del self._answers[key]
