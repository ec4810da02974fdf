"""The sections of a run's configuration: every setting with its type, default and meaning."""
