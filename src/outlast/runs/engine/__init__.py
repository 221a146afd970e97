"""The parts that an open run is made of, each with one thing to look after. What users call is not here."""
