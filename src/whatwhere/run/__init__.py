"""Parts that every command uses: files that are whole or absent, one writer for a folder, jobs, signals, errors,
progress."""
