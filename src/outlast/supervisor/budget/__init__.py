"""The budget of an attempt: limits, prices, the gateway in front of the model, quota walls."""
