"""Parts that every command uses: files, folders of runs with locks, settings, jobs, signals, errors, progress."""
