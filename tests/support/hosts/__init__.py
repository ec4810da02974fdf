"""Hosts for replicas on this machine: sshd, canned jobs with stand-ins of their starters, Ray."""
