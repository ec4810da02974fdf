"""What the benchmark prescribes: the table of rules, rounds, the order of jobs, and the score."""
