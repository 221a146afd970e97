"""What plain git does not store: permissions, secrets, nested repositories, damage."""
