"""What a training step computes, by the kind of learning."""
