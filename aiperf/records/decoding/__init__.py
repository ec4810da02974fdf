"""The usual lines of a history, decoded without the checks that only strange ones need."""
