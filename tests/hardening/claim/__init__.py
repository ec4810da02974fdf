"""The claim to a run under every order of file operations, delays, deaths and clock steps."""
