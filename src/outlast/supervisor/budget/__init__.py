"""What an attempt may spend: meter, limits, the gateway in front of the model, quota walls."""
