"""Running any command under outlast. Here: the two things that agents and their hooks already rely on, the wire and
the environment."""
