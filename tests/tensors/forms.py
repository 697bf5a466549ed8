"""What the parallel tensor calls take, made of plain values, for whichever package is installed."""

import mooncake.store as module


class Partition:
    """What `writer_partition` takes: any object with these attributes."""

    def __init__(self, rank, size, split_dim):
        self.rank, self.size, self.split_dim = rank, size, split_dim


def axis(kind, rank, size, **rest):
    made = module.ParallelAxis()
    made.kind, made.rank, made.size = kind, rank, size
    for name, value in rest.items():
        setattr(made, name, value)
    return made


def parallelism(*axes):
    made = module.TensorParallelism()
    made.axes = list(axes)
    return made


def target(mode, *axes):
    made = module.ReadTarget()
    made.mode = mode
    if axes:
        made.parallelism = parallelism(*axes)
    return made
