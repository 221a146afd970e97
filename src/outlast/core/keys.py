"""Idempotency keys of effects: a frozen format, the same for the same act in every attempt."""


def effect_key(run: str, beat: int, name: str, occurrence: int) -> str:
    """`ol1_` + base32(blake2b-160) over run, beat, name and occurrence, each length-prefixed."""
    import base64
    import hashlib

    parts = (run.encode(), str(beat).encode(), name.encode(), str(occurrence).encode())
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return "ol1_" + base64.b32encode(hashlib.blake2b(framed, digest_size=20).digest()).decode().lower()
