"""One module a benchmark: `measure(bench) -> Section`."""
