"""The pages below a run's first: effects, saves, differences, budget, context, output, journal."""

import re
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from outlast.dashboard import documents
from outlast.inspect import ledger, show
from outlast.web.html import layout, run_parts
from outlast.web.pages import budget, context, diff, effects, journal, output, run, saves
from tests.web import sample_documents
from tests.web.run_page_samples import HOSTILE, diff_document, saves_document
from tests.web.sample_documents import (
    NOW,
    SPENT,
    ago,
    checked,
    effect,
    raw,
    row,
    view,
)

# -- effects ----------------------------------------------------------------------------------------------------------


def test_an_effect_of_a_child_is_settled_in_the_child() -> None:
    look = documents.Look(at=ago(10), by="probe", finding="cannot_tell", evidence="503 from the far side")
    found = documents.Effects(
        run="r1", total=2, before=None,
        effects=(
            documents.EffectShown(run="r9", effect=effect(), looks=(look,)),
            documents.EffectShown(run="r1", effect=effect(id="3.1", state="confirmed", result=raw({"id": "po_2"}), settled_by="ada"), looks=()),
        ),
    )  # fmt: skip
    page = effects.render(view(), row(), found)
    words = checked(page).words
    assert 'href="/runs/r9/do/settle?effect=4.1&amp;finding=happened"' in page
    assert "/runs/r1/do/settle" not in page
    assert "cannot tell by probe" in words
    assert "503 from the far side" in words
    assert "happened" in words
    assert "settled by ada" in words
    assert "po_2" in words


def test_a_call_that_reaches_nothing_outside_has_no_policy() -> None:
    def told(**args: object) -> str:
        call = effect(name="Write", state="confirmed", policy="give_up", args=raw({"tool": "Write", **args}))
        shown = documents.EffectShown(run="r1", effect=call, looks=())
        found = documents.Effects(run="r1", total=1, before=None, effects=(shown,))
        return checked(effects.render(view(), row(), found)).words

    assert "none: this call of the agent reaches nothing outside" in told(input={"path": "a"})
    assert "given up if its outcome stays unknown" in told(outward=[{"what": "push"}])


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([["origin"], {"force": True}], "push origin force=true"),
        ({"tool": "Bash", "input": {"command": "git push"}}, "push Bash git push"),
        ({"version": "2.4.0"}, "push version=2.4.0"),
        (None, "push"),
        ("x", "push x"),
    ],
)  # fmt: skip
def test_an_act_reads_as_its_name_and_what_it_was_called_with(args: object, told: str) -> None:
    assert run_parts.act_words(effect(name="push", args=raw(args))) == told


# -- saves and what changed -------------------------------------------------------------------------------------------


def test_a_save_tells_why_what_and_how_it_comes_back() -> None:
    page = saves.render(view(), row(), saves_document(pages=3, page=2))
    words = checked(page).words
    for told in (
        "emergency",
        "signal: SIGTERM from ada",
        "4 files changed",
        "1 file left out",
        "core.dump",
        "5.0 GB",
        "--to ../n",
    ):
        assert told in words, told
    for link in (
        "do/restore?save=9c1e4d2aa01",
        "saves/9c1e4d2aa01?against=before",
        "saves/9c1e4d2aa01?against=head",
        "saves?page=3",
    ):
        assert f'href="/runs/r1/{link}"' in page, link


def test_saves_that_cannot_be_read_say_why() -> None:
    page = saves.render(
        view(), row(), saves_document(total=0, saves=(), problem="the folder is gone: `outlast doctor`")
    )
    assert "the folder is gone: `outlast doctor`" in checked(page).words


def test_a_changed_line_has_its_number_and_its_sign() -> None:
    page = diff.render(view(), row(), diff_document())
    checked(page)
    assert (
        '<tr class="deleted"><td>2</td><td></td><td><span aria-label="deleted" role="img">−</span></td><td>old &lt;b&gt;</td>'
        in page
    )
    assert '<td>2</td><td><span aria-label="added" role="img">+</span></td>' in page
    assert 'href="#f1"' in page
    assert 'id="f1"' in page


def test_what_is_no_text_and_what_is_cut_is_said() -> None:
    words = checked(diff.render(view(), row(), diff_document())).words
    assert "This is not a text file" in words
    assert "The rest of this file is not shown" in words
    assert "6 more files differ" in words
    assert "No line differs" in words


def test_one_switches_between_the_save_before_and_head() -> None:
    page = diff.render(view(), row(), diff_document(against="head"))
    assert 'against=head" class="button" aria-current="page"' in page
    assert 'against=before" class="button">' in page
    nothing = checked(diff.render(view(), row(), diff_document(files=(), files_total=0, cut=False))).words
    assert "Nothing differs from the save before" in nothing


# -- budget, context, output, journal ---------------------------------------------------------------------------------


def test_the_budget_is_told_by_unit_beat_tool_and_attempt() -> None:
    words = checked(budget.render(view(), row(), sample_documents.books())).words
    for told in (
        "55k (55 %)",
        "100k",
        "45k",
        "140k, above the limit",
        "45 min",
        "told to wrap up",
        "write tests",
        "Bash",
        "SIGTERM",
        "100k tokens by ada",
    ):
        assert told in words, told


def test_a_cell_of_a_table_is_one_thing_beside_its_label_on_a_phone() -> None:
    page = budget.render(view(), row(), sample_documents.books())
    cells = re.findall(r"<td data-l=[^>]*>(.*?)</td>", page, re.DOTALL)
    assert len(cells) > 20
    assert [cell for cell in cells if not re.fullmatch(r"<div>.*</div>", cell, re.DOTALL)] == []
    assert any("</a> " in cell for cell in cells), "a link and the reason beside it"


@pytest.mark.parametrize(
    ("spent", "told"),
    [
        (msgspec.structs.replace(SPENT, cost_microusd=0, subscription=True), "subscription"),
        (msgspec.structs.replace(SPENT, cost_microusd=0, unpriced=True), "unknown price"),
    ],
)  # fmt: skip
def test_what_was_not_paid_is_not_called_no_dollars(spent: show.Spent, told: str) -> None:
    unit = ledger.Unit(
        unit="usd", limit=None, spent=0, left=None, reserved=0, ending_reserve=0, used_pct=None, wraps_up=False, per_hour=None,
        per_hour_now=None, forecast=None, lasts_s=None,
    )  # fmt: skip
    base = sample_documents.books()
    books = sample_documents.books(
        units=(unit,), spent=spent, by_tool=(msgspec.structs.replace(base.by_tool[0], cost_microusd=0),),
        by_beat=(msgspec.structs.replace(base.by_beat[0], spent=spent),),
        by_attempt=(msgspec.structs.replace(base.by_attempt[0], spent=spent),),
    )  # fmt: skip
    words = checked(budget.render(view(), row(), books)).words
    assert words.count(told) == 4
    assert "$" not in words


def test_a_budget_that_is_spent_says_what_to_type() -> None:
    books = sample_documents.books(
        cause="budget", evidence="100,000 of 100,000 tokens", more="--budget +100k"
    )
    page = budget.render(view(), row(cause="budget"), books)
    assert "outlast resume r1 --budget +100k" in checked(page).words
    assert 'href="/runs/r1/do/budget" class="button primary"' in page


def test_the_context_is_shown_word_for_word() -> None:
    text = "# Task\n\n  <b>indented</b>\t& so on\n" + "x" * 50_000
    page = context.render(view(), row(), documents.Context(run="r1", tokens=12_345, text=text))
    read = checked(page)
    assert text in "".join(read.text)
    assert "12,345 tokens" in read.words


def _line(text: str, stream: str = "out", *, continues: bool = False) -> documents.OutputLine:
    return documents.OutputLine(at="03:10:02.123", stream=stream, text=text, continues=continues)


def test_output_names_the_stream_leaves_out_colours_and_shows_the_rest() -> None:
    lines = (
        _line("\x1b[1;32mok\x1b[0m done"),
        _line(f"bad {HOSTILE}", "err"),
        _line("more", "err", continues=True),
        _line("ended", "---"),
    )
    given = documents.Output(run="r1", attempt=2, attempts=(1, 2), lines=lines, cut=4_096)
    page = output.render(view(), row(), given)
    read = checked(page)
    assert '<span class="x">ok done</span>' in page
    assert "err" in read.words
    assert "outlast" in read.words
    assert "\x1b" not in page
    assert "4.0 KB before this" in read.words
    assert 'href="/runs/r1/output?attempt=1"' in page
    assert "03:10:02" in read.words


def test_very_much_output_is_bounded() -> None:
    given = documents.Output(
        run="r1", attempt=400, attempts=tuple(range(1, 401)), lines=(_line("x"),) * 60_000, cut=0
    )
    page = output.render(view(), row(), given)
    assert "58,000 lines before this" in checked(page).words
    assert len(page) < 250_000


def test_an_event_is_folded_over_its_json() -> None:
    entry = documents.Entry(
        n=9,
        seq=4,
        at=ago(3),
        tag="beat_done",
        text=HOSTILE[:200],
        event=raw({"t": "beat_done", "result": HOSTILE}),
    )
    page = journal.render(
        view("/runs/r1/journal"), row(), documents.JournalPage(run="r1", total=4, events=(entry,), before=4)
    )
    words = checked(page).words
    assert "beat done" in words
    assert '"t": "beat_done"' in words
    assert "more characters" in words
    assert 'href="/runs/r1/journal?before=4"' in page
    assert 'datetime="2026-11-16T03:17:00Z"' in page
    assert ">04:17:00<" in page


def test_times_are_those_of_the_readers_zone() -> None:
    parked = sample_documents.page(row=row(status="parked", parked_until=NOW + timedelta(hours=2)))
    assert ">06:20<" in run.render(view(), parked)


def test_output_has_the_readers_clock_where_its_own_is_known() -> None:
    known = msgspec.structs.replace(_line("known"), moment=datetime(2026, 11, 16, 3, 10, 2, tzinfo=UTC))
    given = documents.Output(run="r1", attempt=1, attempts=(1,), lines=(known,), cut=0)
    told = checked(output.render(view(), row(), given)).words
    assert "04:10:02" in told
    assert "clock of the machine" not in told
    given = msgspec.structs.replace(given, lines=(known, _line("not known")))
    told = checked(output.render(view(), row(), given)).words
    assert "04:10:02" in told
    assert "03:10:02" in told
    assert "clock of the machine" in told


def test_a_time_within_a_sentence_is_the_readers() -> None:
    said = layout.timed(
        view(), "3 files (beat, made 2026-11-16 02:59 UTC after beat 3), not 2026-99-16 02:59 UTC <b>"
    )
    assert (
        sample_documents.Read(said).words
        == "3 files (beat, made 03:59 after beat 3), not 2026-99-16 02:59 UTC <b>"
    )
    assert 'datetime="2026-11-16T02:59:00Z"' in said
