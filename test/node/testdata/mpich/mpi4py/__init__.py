"""A stand-in for mpi4py, for tests: the few calls of it that examples/heat-python makes, over MPICH.

Debian's mpi4py is built for Open MPI alone, and one module cannot serve both.
"""
