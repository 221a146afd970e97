"""A loopback proxy between an agent and its model: passes every byte on, counts what calls cost, can refuse the next.
The supervisor starts a `Gateway` with a `Meter` of its own. No budget, no store and no agent is known here.
"""

from outlast.gateway.server import Gateway
from outlast.gateway.values import Call, CallUsage, Ended, Kind, Meter, Refusal, Wall

__all__ = ["Call", "CallUsage", "Ended", "Gateway", "Kind", "Meter", "Refusal", "Wall"]
