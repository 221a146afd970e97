"""The benchmarks: outlast beside the raw disk and its peers, interleaved in one run. See README.md."""
