"""The benchmark's prescriptions: the table of rules, rounds, the order of jobs, and the score."""
