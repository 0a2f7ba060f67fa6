"""Read by every process of a simulated machine at its start."""

import simulated_cuda

simulated_cuda.install()
