"""Who started this process, who else was started, and where they meet. Starts nothing itself."""
