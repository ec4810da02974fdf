"""Results over months: their facts, a store of them, and what got worse."""
