"""The micro suite: single operators on this device, by several software stacks."""
