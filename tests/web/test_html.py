"""Nothing that an agent wrote becomes a part of a page's structure, and nothing of it is unseen."""

import unicodedata

import pytest
from hypothesis import given, strategies as st

from outlast.web.html.html import Safe, field_text, join, tag, text, trusted, visible
from tests.web.sample_documents import Read

ANY = st.text(
    st.characters(), max_size=60
)  # also halves of pairs, controls, and signs that turn a line around
TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"


@given(ANY, ANY)
def test_every_text_comes_back_as_it_was_and_as_nothing_else(inside: str, title: str) -> None:
    read = Read(tag("p", inside, title=title))
    assert (read.problems, dict(read.tags)) == ([], {"p": 1})
    assert "".join(read.text) == visible(inside)
    page = tag("p", inside, title=title)
    assert page.count("<") == page.count(">") == 2
    assert page.count('"') == 2


@given(ANY)
def test_what_is_not_seen_is_spelled_out(given_text: str) -> None:
    shown = text(given_text)
    assert not [char for char in shown if unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t"]
    assert not set(shown) & set(TURNING)
    shown.encode()  # halves of pairs could not be sent


def test_a_line_cannot_be_turned_around() -> None:
    assert text("\u202egpj.exe\u202c") == "\\u202egpj.exe\\u202c"
    assert text("\x1b[31mred\x00") == "\\u001b[31mred\\u0000"
    assert text("two\nlines\tand a tab") == "two\nlines\tand a tab"


def test_joiners_stay_where_a_script_needs_them() -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    persian = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    assert (text(family), text(persian)) == (family, persian)
    assert text("pay\u200dpal") == "pay\\u200dpal"


def test_only_what_was_made_here_is_taken_as_it_is() -> None:
    assert tag("b", tag("i", "x")) == "<b><i>x</i></b>"
    assert tag("b", "<i>x</i>") == "<b>&lt;i&gt;x&lt;/i&gt;</b>"
    assert join(["a", None, False, 3, [tag("br"), "<"]]) == "a3<br>&lt;"
    assert type(Safe("a") + "<b>") is str, "what is added to a safe text is not safe by that"
    assert tag("b", Safe("a") + "<b>") == "<b>a&lt;b&gt;</b>"
    assert tag("b", trusted("<hr>")) == "<b><hr></b>"


@given(ANY)
def test_what_stands_in_a_field_is_sent_back_as_it_was(value: str) -> None:
    lines = value.replace("\r\n", "\n").replace("\r", "\n")
    kept = "".join("\ufffd" if char == "\0" or "\ud800" <= char <= "\udfff" else char for char in lines)
    page = tag("p", tag("input", value=value), tag("textarea", field_text(value)))
    read = Fields(page)
    assert (read.values, "".join(read.text)) == ([kept], f"\n{kept}")
    assert dict(read.tags) == {"p": 1, "input": 1, "textarea": 1}


class Fields(Read):
    """The values of the fields of a form."""

    def __init__(self, page: str) -> None:
        self.values: list[str | None] = []
        super().__init__(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.values += [value for name, value in attrs if name == "value"]
        super().handle_starttag(tag, attrs)


def test_attributes_are_named_as_in_html() -> None:
    made = tag("input", class_="a", data_row=True, hidden=False, value=None, aria_label='"<')
    assert made == '<input class="a" data-row aria-label="&quot;&lt;">'


@pytest.mark.parametrize(
    "link", ["javascript:alert(1)", " javascript:x", "//elsewhere/x", "/\\elsewhere", "https://x", "data:x", "", "x"]
)  # fmt: skip
def test_a_link_cannot_lead_out_of_the_page(link: str) -> None:
    for name in ("href", "src", "action", "formaction"):
        with pytest.raises(AssertionError):
            tag("a", **{name: link})


def test_what_the_policy_refuses_cannot_be_built() -> None:
    for attributes in ({"style": "color:red"}, {"onclick": "x()"}, {"onload": True}):
        with pytest.raises(AssertionError):
            tag("p", **attributes)
    for name, inside in (("script", "x()"), ("style", "p{}"), ("iframe", ""), ("base", ""), ("object", "")):
        with pytest.raises(AssertionError):
            tag(name, inside)
    assert tag("script", src="/static/app.js") == '<script src="/static/app.js"></script>'
