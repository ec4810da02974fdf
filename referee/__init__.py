"""The referee: proposals repeated, trainings repeated, signatures. Nothing of it runs in a run."""
