//! io_uring rings, provided buffers and multishot receives behind safe types.
