//! Replies written piece by piece from catalog data.
//!
//! Problem: a lookup of 128 keys answers with 128 lists of descriptors; building them as values costs several
//! allocations a key. A [`ReplyWriter`] appends each piece to the connection's output buffer as it is found; the
//! borrowed descriptor types below have the layout of the owned ones in `yb-types`.

use yb_pack::{BodyWriter, EncodeError, Form, OpenList, Pack, Scratch};
use yb_types::generation::{V0_3_11, V0_3_13, V0_3_14};
use yb_types::{ClientId, ErrorCode, ReplicaId, ReplicaStatus, SegmentLocality};

use crate::codec::finish_response;
use crate::frame::RESPONSE_HEADER_LEN;
use crate::schema::{Rpc, WireTable};
use crate::{TransportError, WireError};

/// A range of registered memory, borrowed. See [`yb_types::BufferDescriptor`].
#[derive(Clone, Copy, Debug, Pack)]
#[pack(encode_only, name = "AllocatedBuffer::Descriptor")]
pub struct BufferRef<'a> {
    /// Bytes.
    pub size: u64,
    /// Absolute address in the owner's process.
    pub buffer_address: u64,
    /// Transport name of the segment.
    pub protocol: &'a str,
    /// `host:port` of the owner's Transfer Engine.
    pub transport_endpoint: &'a str,
    /// NUMA node and NICs near the memory.
    #[pack(since = V0_3_14, compatible = 1)]
    pub locality: Option<&'a SegmentLocality>,
}

/// A struct around a range: the memory and the NVMe-oF descriptor.
#[derive(Clone, Copy, Debug, Pack)]
#[pack(encode_only)]
pub struct BufferHolderRef<'a> {
    /// Where.
    pub buffer: BufferRef<'a>,
}

/// A file of a shared filesystem, borrowed.
#[derive(Clone, Copy, Debug, Pack)]
#[pack(encode_only, name = "DiskDescriptor")]
pub struct DiskRef<'a> {
    /// Path of the file.
    pub file_path: &'a str,
    /// Bytes.
    pub object_size: u64,
}

/// A replica on the owner's disk, borrowed.
#[derive(Clone, Copy, Debug, Pack)]
#[pack(encode_only, name = "LocalDiskDescriptor")]
pub struct LocalDiskRef<'a> {
    /// The owner.
    pub client_id: ClientId,
    /// Bytes.
    pub object_size: u64,
    /// `host:port` of the owner's offload RPC server.
    pub transport_endpoint: &'a str,
}

/// An extent of a distributed filesystem, borrowed.
#[derive(Clone, Copy, Debug, Pack)]
#[pack(encode_only, name = "DistributedFSDescriptor")]
pub struct DfsRef<'a> {
    /// Path of the file.
    pub file_path: &'a str,
    /// Byte offset in the file.
    pub offset: u64,
    /// Bytes of the object.
    pub object_size: u64,
    /// Bytes of the extent.
    pub aligned_size: u64,
    /// Shard of the file.
    pub shard_idx: i32,
}

/// Where a replica lies, borrowed. See [`yb_types::ReplicaKind`].
#[derive(Clone, Copy, Debug, Pack)]
#[pack(encode_only)]
pub enum ReplicaKindRef<'a> {
    /// In memory.
    Memory(BufferHolderRef<'a>),
    /// On NVMe-oF.
    #[pack(since = V0_3_11)]
    Nof(BufferHolderRef<'a>),
    /// In a file of a shared filesystem.
    Disk(DiskRef<'a>),
    /// On the owner's disk.
    LocalDisk(LocalDiskRef<'a>),
    /// On a distributed filesystem.
    #[pack(since = V0_3_13)]
    Dfs(DfsRef<'a>),
}

/// A replica, borrowed. See [`yb_types::ReplicaDescriptor`].
#[derive(Clone, Copy, Debug, Pack)]
#[pack(encode_only, name = "Replica::Descriptor")]
pub struct ReplicaRef<'a> {
    /// Its id.
    pub id: ReplicaId,
    /// Where it lies.
    pub kind: ReplicaKindRef<'a>,
    /// Whether it can be read.
    pub status: ReplicaStatus,
}

impl<'a> ReplicaRef<'a> {
    /// A replica in memory.
    pub fn memory(id: ReplicaId, status: ReplicaStatus, buffer: BufferRef<'a>) -> Self {
        ReplicaRef { id, kind: ReplicaKindRef::Memory(BufferHolderRef { buffer }), status }
    }
}

/// Writes one response frame, or the body of one, at the end of an output buffer.
///
/// The pieces must be those of the function's result, in order; the methods named after results do that.
#[derive(Debug)]
pub struct ReplyWriter<'o> {
    body: BodyWriter<'o>,
    /// Start and sequence number of the frame; `None` when somebody else writes the header.
    frame: Option<(usize, u32)>,
    rpc: Rpc,
}

impl<'o> ReplyWriter<'o> {
    /// Begins the response to request `sequence`. `expected` is the number of elements of a batch (0 for others).
    ///
    /// # Errors
    /// When the generation of `table` does not have the function; `out` is then as before.
    pub fn begin(
        table: &'static WireTable,
        rpc: Rpc,
        sequence: u32,
        form: Form,
        expected: usize,
        out: &'o mut Vec<u8>,
        scratch: &'o mut Scratch,
    ) -> Result<ReplyWriter<'o>, WireError> {
        let signature = table.signature(rpc)?;
        let frame_start = out.len();
        out.extend_from_slice(&[0; RESPONSE_HEADER_LEN]);
        let body = BodyWriter::begin(&signature.reply, form, expected, out, scratch);
        Ok(ReplyWriter { body, frame: Some((frame_start, sequence)), rpc })
    }

    /// Begins the body of a response whose header is written by somebody else.
    ///
    /// # Errors
    /// As [`ReplyWriter::begin`].
    pub fn begin_body(
        table: &'static WireTable,
        rpc: Rpc,
        form: Form,
        expected: usize,
        out: &'o mut Vec<u8>,
        scratch: &'o mut Scratch,
    ) -> Result<ReplyWriter<'o>, WireError> {
        let signature = table.signature(rpc)?;
        let body = BodyWriter::begin(&signature.reply, form, expected, out, scratch);
        Ok(ReplyWriter { body, frame: None, rpc })
    }

    /// Appends a piece.
    pub fn put<T: Pack + ?Sized>(&mut self, value: &T) {
        self.body.put(value);
    }

    /// Begins the value of an `expected`.
    pub fn ok(&mut self) {
        self.body.ok();
    }

    /// Appends an `expected` that holds an error.
    pub fn err(&mut self, error: ErrorCode) {
        self.body.err(&error);
    }

    /// Appends the size of a list; the elements follow.
    pub fn list(&mut self, count: usize) {
        self.body.list(count);
    }

    /// Begins a list whose size is told later.
    pub fn open_list(&mut self) -> OpenList {
        self.body.open_list()
    }

    /// Tells the size of a list.
    pub fn close_list(&mut self, open: OpenList, count: usize) {
        self.body.close_list(open, count);
    }

    /// Appends a list of replicas: the value of PutStart, and the first member of a lookup. Returns their number.
    pub fn replicas<'a>(&mut self, replicas: impl IntoIterator<Item = ReplicaRef<'a>>) -> usize {
        let open = self.open_list();
        let mut count = 0;
        for replica in replicas {
            self.put(&replica);
            count += 1;
        }
        self.close_list(open, count);
        count
    }

    /// Appends one `expected<vector<Replica>>`: an element of BatchPutStart, or the whole of PutStart.
    pub fn reservation<'a>(&mut self, replicas: impl IntoIterator<Item = ReplicaRef<'a>>) {
        self.ok();
        self.replicas(replicas);
    }

    /// Appends one `expected<GetReplicaListResponse>`: an element of BatchGetReplicaList, or the whole of
    /// GetReplicaList.
    pub fn lookup<'a>(
        &mut self,
        replicas: impl IntoIterator<Item = ReplicaRef<'a>>,
        lease_ttl_ms: u64,
        object_checksum: Option<u64>,
        resolved_tenant_id: Option<&[u8]>,
    ) {
        self.ok();
        self.replicas(replicas);
        self.lookup_rest(lease_ttl_ms, object_checksum, resolved_tenant_id);
    }

    /// The members of a lookup after [`ReplyWriter::ok`] and [`ReplyWriter::replicas`].
    pub fn lookup_rest(&mut self, lease_ttl_ms: u64, object_checksum: Option<u64>, resolved_tenant_id: Option<&[u8]>) {
        self.put(&lease_ttl_ms);
        if self.body.version() >= V0_3_13 {
            self.put(&object_checksum);
        }
        self.body.put_compat(&resolved_tenant_id);
    }

    /// Ends the frame.
    ///
    /// # Errors
    /// When a piece does not exist in the generation, or the body is longer than 4 GiB. The buffer then ends where
    /// the frame (or the body) began, and another answer can be given.
    pub fn finish(self) -> Result<(), WireError> {
        let (out, result) = self.body.finish();
        match result {
            Ok(()) => {
                if let Some((start, sequence)) = self.frame {
                    finish_response(out, start, sequence, TransportError::OK);
                }
                Ok(())
            }
            Err(source) => {
                if let Some((start, _)) = self.frame {
                    out.truncate(start);
                }
                Err(encode_error(self.rpc, source))
            }
        }
    }
}

fn encode_error(rpc: Rpc, source: EncodeError) -> WireError {
    WireError::Encode { rpc, source }
}
