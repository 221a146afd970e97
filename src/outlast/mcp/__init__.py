"""`outlast mcp`: a run's tools for its agent, by the Model Context Protocol on stdin and stdout. What they do is the supervisor's."""
