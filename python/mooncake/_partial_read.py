"""Which bytes of a row-major matrix make up a part of it."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class MatrixReadPlan:
    """What to read for a part of a matrix."""

    #: Rows and columns of the part.
    shape: tuple[int, int]
    #: Bytes of the part.
    nbytes: int
    #: (offset in the matrix, offset in the part, length) in bytes, adjacent ones joined; None when it would take more
    #: than were allowed: read everything then.
    ranges: tuple[tuple[int, int, int], ...] | None


def plan_matrix_read(
    shape: tuple[int, int], itemsize: int, rows: range | tuple[int, ...], columns: slice, max_ranges: int
) -> MatrixReadPlan:
    """The byte ranges of some rows, in their order, cut to a slice of columns.

    `rows` is a range with a positive step, or a tuple of indices; both from 0, without negative ones. `columns` has step 1.
    Raises `ValueError` for a shape that is not two-dimensional, negative sizes, or steps; `TypeError` for other types,
    `IndexError` for a row that is not there, `OverflowError` for a matrix larger than memory can be.
    """
    height, width = _checked_shape(shape, itemsize)
    first, last, step = _columns(columns, width)
    selected = _rows(rows, height)
    count = max(0, last - first)
    length, pitch = count * itemsize, width * itemsize
    part = (len(selected), count)
    nbytes = part[0] * length
    if nbytes == 0:
        return MatrixReadPlan(part, 0, ())
    starts = (row * pitch + first * itemsize for row in selected)
    return MatrixReadPlan(part, nbytes, _joined(starts, length, max_ranges))


def _checked_shape(shape: tuple[int, int], itemsize: int) -> tuple[int, int]:
    if len(shape) != 2:
        raise ValueError("only a matrix of two dimensions can be read in part")
    height, width = (operator.index(size) for size in shape)
    if height < 0 or width < 0 or operator.index(itemsize) <= 0:
        raise ValueError("the shape of a matrix is not negative, and its items have at least one byte")
    if height * width * itemsize > sys.maxsize:
        raise OverflowError("the matrix has more bytes than memory can have")
    return height, width


def _columns(columns: slice, width: int) -> tuple[int, int, int]:
    if not isinstance(columns, slice):
        raise TypeError("columns is a slice")
    if columns.step not in (None, 1):
        raise ValueError("the step of columns is 1")
    return columns.indices(width)


def _rows(rows: range | tuple[int, ...], height: int) -> range | tuple[int, ...]:
    if isinstance(rows, range):
        if rows.step <= 0:
            raise ValueError("the step of rows is positive")
        ends: Iterable[int] = (rows[0], rows[-1]) if rows else ()
    elif isinstance(rows, tuple):
        ends = rows = tuple(operator.index(row) for row in rows)
    else:
        raise TypeError("rows is a range or a tuple")
    if any(row < 0 or row >= height for row in ends):
        raise IndexError(f"a row is not among the {height} of the matrix")
    return rows


def _joined(starts: Iterable[int], length: int, most: int) -> tuple[tuple[int, int, int], ...] | None:
    """Ranges of `length` bytes from each start on; None when they are more than `most`."""
    ranges: list[tuple[int, int, int]] = []
    end = None
    for number, start in enumerate(starts):
        if start == end:
            source, destination, so_far = ranges[-1]
            ranges[-1] = (source, destination, so_far + length)
        elif len(ranges) >= most:
            return None
        else:
            ranges.append((start, number * length, length))
        end = start + length
    return tuple(ranges)
