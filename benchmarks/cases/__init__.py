"""One module per benchmark: `measure(bench) -> Section`."""
