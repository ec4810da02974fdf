"""The machine of a rehearsal: its file, the time that it takes for work, and what breaks."""
