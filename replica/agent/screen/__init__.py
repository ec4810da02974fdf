"""The program that screens a node: a process for each device, and facts that may explain a rate."""
