"""Singh: parallelizing deep neural networks using MPI and GPU computing."""
