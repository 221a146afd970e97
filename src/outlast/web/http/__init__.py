"""HTTP/1.1 on the standard library: requests, responses, sessions, who may connect."""
