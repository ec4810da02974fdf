"""The page of a run's report: its words, its charts, and the library that draws them."""
