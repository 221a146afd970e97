"""Which hosts are this machine itself."""

import ipaddress


def is_loopback(host: str) -> bool:
    """`localhost` and names below it, 127.0.0.0/8, ::1, 0.0.0.0 and ::, as URLs and options write them."""
    plain = host.strip().rstrip(".").strip("[]").partition("%")[0].lower()
    if plain == "localhost" or plain.endswith(".localhost") or plain in ("ip6-localhost", "ip6-loopback"):
        return True
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    address = mapped or address
    return address.is_loopback or address.is_unspecified
