"""Shell command lines: parsed into the programs they run."""
