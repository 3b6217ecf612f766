"""Work on other processes and machines: one loop over many kinds of executors, which survives what happens to them."""
