"""Outward calls: which of an agent's calls act on the world outside, what each would do to what, and how to look.

`classify` and all it imports need nothing but the standard library, so that a hook's client can use them alone
(`alone`). `probes` reads the world back and is for the supervisor. Nothing here starts an outward call.
"""
