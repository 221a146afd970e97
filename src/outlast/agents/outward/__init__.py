"""Outward calls: which of an agent's calls act on the world outside, on what, and how to look. Nothing here starts one.
`classify` needs only the standard library, so a hook's client can load it (`alone`); `probes` is for the supervisor.
"""
