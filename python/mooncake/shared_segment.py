"""Tensors in memory that the ranks of a group on one host share: held once, mapped by every rank.

Every rank calls `create_shared_segment` with the same blocks and gets a `SharedSegment`, whose `tensors(block)` are views
of the shared memory. Needs torch, which is imported at first use.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mooncake import engine

__all__ = ["SharedSegment", "SharedSegmentError", "create_shared_segment", "shared_segment_supported"]

#: Entries of a block start at multiples of this many bytes.
ALIGNMENT = 4096


class SharedSegmentError(RuntimeError):
    """A segment that cannot be made, or a block that it does not have."""


def shared_segment_supported(mmap: bool = True, host_register: bool = False) -> bool:
    """Whether segments of this kind can be made."""
    return engine.SharedSegment.supported(mmap, host_register)


@dataclass(frozen=True)
class _Block:
    """`count` tensors of one shape and type."""

    count: int
    shape: tuple[int, ...]
    dtype: Any
    nbytes: int

    @classmethod
    def of(cls, name: str, declared: Mapping[str, Any]) -> _Block:
        import torch

        try:
            count, shape, dtype = int(declared["count"]), tuple(int(size) for size in declared["shape"]), declared["dtype"]
        except (KeyError, TypeError) as error:
            raise SharedSegmentError(f"block {name!r} has to declare count, shape and dtype") from error
        if count <= 0 or not shape or min(shape) <= 0:
            raise SharedSegmentError(f"block {name!r}: count and shape have to be positive")
        return cls(count, shape, dtype, math.prod(shape) * torch.empty(0, dtype=dtype).element_size())

    def tag(self, name: str) -> str:
        """What all ranks have to declare alike, as the peer writes it."""
        return f"{name}:{self.count}:{'x'.join(map(str, self.shape))}:{self.dtype}:{self.nbytes}"


@dataclass(frozen=True)
class _Layout:
    """Where entries are: the i-th entries of all blocks follow each other, in the order of the blocks' names."""

    blocks: dict[str, _Block]
    offsets: dict[str, int]
    stride: int

    @classmethod
    def of(cls, declared: Mapping[str, Mapping[str, Any]]) -> _Layout:
        blocks = {name: _Block.of(name, declared[name]) for name in sorted(declared)}
        offsets, stride = {}, 0
        for name, block in blocks.items():
            offsets[name] = stride
            stride += -(-block.nbytes // ALIGNMENT) * ALIGNMENT
        if not stride:
            raise SharedSegmentError("a shared segment has at least one block")
        return cls(blocks, offsets, stride)

    def size(self) -> int:
        return self.stride * max(block.count for block in self.blocks.values())

    def name(self, name: str) -> str:
        return f"{name}|{';'.join(block.tag(key) for key, block in self.blocks.items())}"


class SharedSegment:
    """One rank's view of the shared memory, which stays mapped as long as this object or one of its tensors."""

    def __init__(self, segment: engine.SharedSegment, layout: _Layout):
        self._segment = segment
        self._layout = layout

    def tensors(self, block: str) -> list[Any]:
        """Every entry of a block, in order, without a copy."""
        import torch

        declared = self._layout.blocks.get(block)
        if declared is None:
            raise SharedSegmentError(f"the segment has no block {block!r}")
        views = []
        for index in range(declared.count):
            address = self.base_addr() + self._layout.offsets[block] + index * self._layout.stride
            memory = (ctypes.c_byte * declared.nbytes).from_address(address)
            # The tensor keeps the buffer, the buffer keeps the mapping.
            setattr(memory, "segment", self._segment)
            views.append(torch.frombuffer(memory, dtype=declared.dtype).view(declared.shape))
        return views

    def base_addr(self) -> int:
        """Where the memory is in this process."""
        return self._segment.base_addr()

    def total_size(self) -> int:
        """Bytes that are shared."""
        return self._segment.size()


def create_shared_segment(
    name: str,
    blocks: Mapping[str, Mapping[str, Any]],
    world_size: int,
    rank_id: int,
    owner_rank: int = 0,
    device_id: int | None = None,
    comm_group: Any = None,
    mmap: bool = True,
    host_register: bool = False,
    *,
    tp_group: Any = None,
) -> SharedSegment:
    """Makes the segment together with the other ranks.

    `blocks` maps names to `{"count": n, "shape": (...), "dtype": torch.dtype}`. `comm_group` is a torch process group, or
    something with one as `cpu_group`; it is needed with more than one rank. `tp_group` is its older name. When a rank
    fails, every rank raises `SharedSegmentError`.
    """
    if comm_group is not None and tp_group is not None and comm_group is not tp_group:
        raise SharedSegmentError("comm_group and tp_group are names of the same group")
    group = comm_group if comm_group is not None else tp_group
    if world_size > 1 and group is None:
        raise SharedSegmentError("comm_group is needed with more than one rank")
    if host_register and not mmap:
        raise SharedSegmentError("host_register needs mmap")
    if not shared_segment_supported(mmap, host_register):
        raise SharedSegmentError("this build shares memory by mmap only, without registering it with a device")
    ranks = _Ranks(world_size, rank_id, getattr(group, "cpu_group", None) or group)
    layout = _Layout.of(blocks)

    def create() -> tuple[engine.SharedSegment, bytes]:
        arguments = (layout.name(name), layout.size(), world_size, rank_id, owner_rank, device_id or 0, mmap, host_register)
        return engine.SharedSegment.create(*arguments)

    segment, blob = ranks.all_or_none("create", create)
    blobs = ranks.blobs(blob)
    ranks.all_or_none("complete", lambda: segment.complete(blobs))
    return SharedSegment(segment, layout)


@dataclass(frozen=True)
class _Ranks:
    """What the ranks tell each other: with the same collectives as the peer's, so that groups may be mixed."""

    world_size: int
    rank: int
    group: Any

    def blobs(self, mine: bytes) -> list[bytes]:
        """Every rank's blob, in their order."""
        if self.world_size == 1:
            return [mine]
        import torch
        from torch import distributed

        local = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
        gathered = [torch.empty_like(local) for _ in range(self.world_size)]
        distributed.all_gather(gathered, local, group=self.group)
        return [bytes(blob.tolist()) for blob in gathered]

    def all_or_none(self, what: str, work: Any) -> Any:
        """The result of `work`; when any rank failed, all raise."""
        answer, failure = None, None
        try:
            answer = work()
        except RuntimeError as error:
            failure = (self.rank, str(error))
        failures: list[Any] = [failure]
        if self.world_size > 1:
            from torch import distributed

            failures = [None] * self.world_size
            distributed.all_gather_object(failures, failure, group=self.group)
        texts = [f"rank {rank}: {text}" for rank, text in filter(None, failures)]
        if texts:
            raise SharedSegmentError(f"shared segment {what} failed: {'; '.join(texts)}")
        return answer
