"""Virtual time: an event loop whose clock jumps, and replicas that are tasks of one process."""
