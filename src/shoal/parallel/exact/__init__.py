"""The same bits on any number of workers: order of sums, random numbers, threads."""
