"""`python -m shoal` is the command line."""

from shoal.cli import main

if __name__ == "__main__":  # the other ranks of `mpiexec python -m mpi4py.futures -m shoal` import this too
    main()
