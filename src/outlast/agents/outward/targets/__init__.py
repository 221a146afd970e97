"""Where a call goes: the target that its words name."""
