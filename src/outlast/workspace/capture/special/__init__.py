"""What plain git does not store: permissions, secrets, repositories inside, damage."""
