"""Small drawings of our own, 16 by 16, in the colour of the text beside them: colour alone never shows a state."""

import re

from outlast.web.html.html import NOTHING, Safe, join, tag, trusted

_USED = re.compile(r'href="#i-([a-z-]+)"')

# Each is what stands inside <symbol viewBox="0 0 16 16">. Strokes are set by the stylesheet.
_DRAWN = {
    # states
    "running": '<path d="M5 3.2v9.6L13 8z" class="f"/>',
    "paused": '<path d="M5.5 3.5v9M10.5 3.5v9"/>',
    "interrupted": '<path d="M9 1.8 3.8 9H8l-1 5.2L12.2 7H8z"/>',
    "in-doubt": '<circle cx="8" cy="8" r="6.2"/><path d="M6.2 6.3a1.9 1.9 0 1 1 2.6 1.8c-.6.3-.8.6-.8 1.2M8 11.4v.1"/>',
    "parked": '<circle cx="8" cy="8" r="6.2"/><path d="M8 4.5V8l2.4 1.6"/>',
    "done": '<path d="m3 8.6 3.4 3.4L13 4.6"/>',
    "failed": '<path d="m4 4 8 8m0-8-8 8"/>',
    "cancelled": '<circle cx="8" cy="8" r="6.2"/><path d="m3.8 3.8 8.4 8.4"/>',
    "handed-off": '<path d="M2.5 8h10M9 4.5 12.5 8 9 11.5"/>',
    # headings and signs
    "needs-you": '<path d="M8 2.2 14.4 13.4H1.6zM8 6.4v3.2M8 11.5v.1"/>',
    "stopped": '<path d="M4 4h8v8H4z"/>',
    "idle": '<circle cx="8" cy="8" r="6.2"/><path d="M5.2 8h.1M8 8h.1M10.8 8h.1"/>',
    "stuck": '<path d="M4.5 2.2h7M4.5 13.8h7M5.3 2.2c0 3.4 5.4 3.7 5.4 5.8s-5.4 2.4-5.4 5.8M10.7 2.2c0 3.4-5.4 3.7-5.4 5.8s5.4 2.4 5.4 5.8"/>',
    "info": '<circle cx="8" cy="8" r="6.2"/><path d="M8 7.4v3.8M8 4.8v.1"/>',
    "save": '<path d="M8 2v7.6M4.8 6.6 8 9.8l3.2-3.2M2.5 13.4h11"/>',
    "child": '<path d="M4.5 2v6.5a2 2 0 0 0 2 2H12"/>',
    "search": '<circle cx="7" cy="7" r="4.4"/><path d="m10.4 10.4 3.4 3.4"/>',
    "copy": '<path d="M5.5 5.5h8v8h-8zM10.5 5.3V2.5h-8v8h2.8"/>',
    "theme": '<circle cx="8" cy="8" r="5.8"/><path d="M8 2.2a5.8 5.8 0 0 1 0 11.6z" class="f"/>',
    "keys": '<path d="M1.8 4h12.4v8H1.8zM4.4 6.6h.1M7 6.6h.1M9.6 6.6h.1M12 6.6h.1M5 9.6h6"/>',
    "right": '<path d="m6 3.5 4.5 4.5L6 12.5"/>',
    "left": '<path d="M10 3.5 5.5 8l4.5 4.5"/>',
    "pick": '<path d="M13 8a5 5 0 1 1-1.6-3.7M13.2 2v3h-3"/>',
    # causes
    "budget": '<ellipse cx="8" cy="4.4" rx="5" ry="2.1"/><path d="M3 4.4v7.2c0 1.2 2.2 2.1 5 2.1s5-.9 5-2.1V4.4M3 8c0 1.2 2.2 2.1 5 2.1s5-.9 5-2.1"/>',
    "signal": '<path d="M9 1.8 3.8 9H8l-1 5.2L12.2 7H8z"/>',
    "crash": '<path d="M5.4 1.8h5.2l3.6 3.6v5.2l-3.6 3.6H5.4l-3.6-3.6V5.4zM5.8 5.8l4.4 4.4m0-4.4-4.4 4.4"/>',
    "oom": '<path d="M3 5h10v6H3zM5.5 5V3M8 5V3m2.5 2V3m-5 10v-2M8 13v-2m2.5 2v-2"/>',
    "quota": '<path d="M2.6 12a6.2 6.2 0 1 1 10.8 0M8 9.6l2.6-3.4"/>',
    "auth": '<circle cx="5" cy="8" r="2.8"/><path d="M7.8 8h6.4v2.4M11.4 8v2"/>',
    "network": '<path d="M2 6.2a9 9 0 0 1 12 0M4.2 9a5.6 5.6 0 0 1 7.6 0M8 12.3v.1"/>',
    "context": '<path d="M3 2.5h10v11H3zM5.5 5.5h5M5.5 8h5m-5 2.5h3"/>',
    "disk": '<path d="M2.5 9.5 4.5 3h7l2 6.5v3.8h-11zM2.5 9.5h11M11 11.5h.1"/>',
    "operator": '<circle cx="8" cy="5" r="2.8"/><path d="M2.6 14a5.4 5.4 0 0 1 10.8 0"/>',
    "host": '<path d="M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.1M5 11h.1"/>',
    "checks": '<path d="m2.4 4.4 1.4 1.4 2.4-2.6M2.4 10.6l1.4 1.4 2.4-2.6M8.8 5h5M8.8 11.2h5"/>',
    "invariant": '<path d="M3.5 7h9v6.5h-9zM5.4 7V4.8a2.6 2.6 0 0 1 5.2 0V7"/>',
}
_SAME = {
    "stall": "stuck", "quarantine": "cancelled", "program-missing": "search", "needs you": "needs-you"
}  # fmt: skip


def icon(name: str, *, class_: str = "") -> Safe:
    """The drawing of a state, a heading or a cause; nothing for a name that has none. The word beside it says the same."""
    plain = name.replace("_", "-")
    plain = _SAME.get(plain, plain)
    if plain not in _DRAWN:
        return NOTHING
    return tag("svg", tag("use", href=f"#i-{plain}"), class_=f"i {class_}".strip(), aria_hidden="true")


def sheet(page: str) -> Safe:
    """The drawings that a page uses, once each."""
    used = sorted(set(_USED.findall(page)) & _DRAWN.keys())
    drawn = [tag("symbol", trusted(_DRAWN[name]), id=f"i-{name}", viewBox="0 0 16 16") for name in used]
    return tag("svg", join(drawn), class_="sheet", aria_hidden="true") if drawn else NOTHING
