"""What every command has: files that are whole or absent, one writer a folder, jobs, signals, errors, progress."""
