"""A loopback proxy between an agent and its model: it passes every byte on, counts what calls cost, can refuse the next.

`Gateway` is what the supervisor starts, `Meter` what it gives it. Here is no budget, no store and no agent.
"""

from outlast.gateway.server import Gateway
from outlast.gateway.values import Call, CallUsage, Ended, Kind, Meter, Refusal, Wall

__all__ = ["Call", "CallUsage", "Ended", "Gateway", "Kind", "Meter", "Refusal", "Wall"]
