"""Running environments in this process, in threads or in processes."""
