"""What users hold in their hands: `Run` and `Beat`, and the same two awaited. Typed, thin, without logic of their own."""
