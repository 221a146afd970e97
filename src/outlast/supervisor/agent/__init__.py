"""One attempt of an agent CLI we know: its calls, its hooks, its session and transcript."""
