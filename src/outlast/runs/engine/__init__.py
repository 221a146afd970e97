"""The parts that an open run is made of, and how its generators are driven. What users call is not here."""
