//! The Python class around an engine.
//!
//! Invariants: a call on an engine that is not initialized, or closed, answers like any failed call, in its shape; the
//! interpreter is released around everything that can wait; memory that objects own is kept until nothing uses it.

use std::sync::Arc;

use parking_lot::RwLock;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};
use yb_classic::{BatchId, BufferEntry, Opcode, device_list};

use crate::convert::{Key, Text, Unsigned};
use crate::engine::address::Place;
use crate::engine::calls::{Extra, Interrupted, Lists, PageArrays, arrays, not_initialized, opcode_of};
use crate::engine::live::{FAILED, Live, Start, number};
use crate::engine::notify::{InnerTransferEngine, TransferNotify};
use crate::engine::pages::Words;
use crate::engine::scatter::{ScatterLists, ScatterTransferTicket};
use crate::engine::wait::interruptible;
use crate::enums::TransferOpcode;
use crate::last_error::LastWords;
use crate::memory::unwritten_bytes;

/// An engine: nothing before `initialize`, and again nothing after `close`.
///
/// Every call may be made from many threads at once; none holds the interpreter while it waits, and signals get through.
/// Addresses are ints, or objects with the buffer protocol, or tensors.
#[pyclass(module = "mooncake.engine", name = "TransferEngine", subclass, frozen, weakref)]
#[derive(Default)]
pub(crate) struct TransferEngine {
    pub(crate) live: RwLock<Option<Arc<Live>>>,
    pub(crate) last: Arc<LastWords>,
}

#[pymethods]
#[expect(clippy::too_many_arguments, reason = "the peer's signatures")]
impl TransferEngine {
    /// Takes no arguments; those of a class derived from this one are for its `__init__`.
    #[new]
    #[classmethod]
    #[pyo3(signature = (*arguments, **named))]
    fn new(
        cls: &Bound<'_, PyType>,
        arguments: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let given = arguments.len() + named.map_or(0, |named| named.len());
        if given > 0 && cls.is(cls.py().get_type::<TransferEngine>()) {
            return Err(PyTypeError::new_err("TransferEngine() takes no arguments"));
        }
        Ok(TransferEngine::default())
    }

    /// The class of the opcodes.
    #[classattr]
    #[pyo3(name = "TransferOpcode")]
    fn opcode_class(py: Python<'_>) -> Py<PyType> {
        py.get_type::<TransferOpcode>().unbind()
    }

    /// Starts the engine: its own host (and, with a metadata server, its name), "P2PHANDSHAKE" or where the metadata
    /// server is, "tcp" or "rdma", and the names of the NICs to use, separated by commas. 0, or -1 (see `last_error`). A
    /// second call replaces the engine.
    #[pyo3(signature = (local_hostname, metadata_server, protocol, device_name, /))]
    fn initialize(
        &self,
        py: Python<'_>,
        local_hostname: Text,
        metadata_server: Text,
        protocol: Text,
        device_name: Option<Text>,
    ) -> PyResult<i64> {
        self.start_engine(
            py,
            Start {
                host: local_hostname.0,
                metadata: metadata_server.0,
                protocol: protocol.0,
                devices: device_name.unwrap_or_default().0,
            },
        )
    }

    /// As `initialize`; `metadata_type` ("etcd", "http", "redis") goes before a metadata server that has no scheme.
    #[pyo3(signature = (local_hostname, metadata_server, protocol, device_name, metadata_type, /))]
    fn initialize_ext(
        &self,
        py: Python<'_>,
        local_hostname: Text,
        metadata_server: Text,
        protocol: Text,
        device_name: Option<Text>,
        metadata_type: Option<Text>,
    ) -> PyResult<i64> {
        let kind = metadata_type.unwrap_or_default().0;
        let plain =
            metadata_server.0.contains("://") || metadata_server.0 == yb_classic::P2P_HANDSHAKE || kind.is_empty();
        let metadata = if plain { metadata_server.0 } else { format!("{kind}://{}", metadata_server.0) };
        let devices = device_name.unwrap_or_default().0;
        self.start_engine(py, Start { host: local_hostname.0, metadata, protocol: protocol.0, devices })
    }

    /// Ends the engine. Not in the peer, where it lives as long as the object.
    fn close(&self, py: Python<'_>) {
        let live = self.live.write().take();
        if let Some(live) = live {
            py.detach(|| live.close());
        }
    }

    /// The last failure of a call on this object, in words; empty before the first. Not in the peer.
    fn last_error(&self) -> String {
        self.last.get()
    }

    /// Port of the handshake: `host:port` is the name that peers use. 0 when not initialized.
    fn get_rpc_port(&self) -> u16 {
        self.live().map_or(0, |live| live.classic().rpc_port())
    }

    /// Which NICs are near which memory, as JSON; works before `initialize`.
    #[pyo3(signature = (device_name=None))]
    fn get_local_topology(&self, py: Python<'_>, device_name: Option<Text>) -> String {
        let named = device_name.filter(|names| !names.0.is_empty());
        let live = self.live.read().clone().filter(|live| live.is_open());
        py.detach(|| match (named, live) {
            (None, Some(live)) => live.classic().topology_text(),
            (names, _) => yb_classic::topology_text(&names.map(|names| device_list(&names.0)).unwrap_or_default()),
        })
    }

    /// Address of a new registered buffer, or 0.
    #[pyo3(signature = (length, /))]
    fn allocate_managed_buffer(&self, py: Python<'_>, length: Unsigned) -> u64 {
        let Some(live) = self.live() else { return 0 };
        py.detach(|| live.allocate(length.0)).unwrap_or_else(|| {
            self.refuse("no memory for the buffer");
            0
        })
    }

    /// Gives a buffer back. 0, or -1 when there is none of that address and size.
    #[pyo3(signature = (buffer, length, /))]
    fn free_managed_buffer(&self, py: Python<'_>, buffer: Unsigned, length: Unsigned) -> i64 {
        let Some(live) = self.live() else { return FAILED };
        if py.detach(|| live.free(buffer.0, length.0)) {
            0
        } else {
            self.refuse("no managed buffer has this address and size")
        }
    }

    /// Copies `length` bytes of `data` (text as UTF-8) into registered memory. 0; `ValueError` when the memory is not
    /// registered or the data are shorter.
    #[pyo3(signature = (dest_address, data, length, /))]
    fn write_bytes_to_buffer(
        &self,
        py: Python<'_>,
        dest_address: Unsigned,
        data: Key,
        length: Unsigned,
    ) -> PyResult<i64> {
        let live = self.live().ok_or_else(not_initialized)?;
        let wanted = usize::try_from(length.0).ok().and_then(|length| data.0.get(..length));
        let bytes = wanted
            .ok_or_else(|| PyValueError::new_err(format!("{} bytes of data that have {}", length.0, data.0.len())))?;
        if bytes.is_empty() {
            return Ok(0);
        }
        py.detach(|| live.copy_in(dest_address.0, bytes)).map_err(PyValueError::new_err)?;
        Ok(0)
    }

    /// A copy of `length` bytes of registered memory; `ValueError` when it is not registered.
    #[pyo3(signature = (source_address, length, /))]
    fn read_bytes_from_buffer<'py>(
        &self,
        py: Python<'py>,
        source_address: Unsigned,
        length: Unsigned,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let live = self.live().ok_or_else(not_initialized)?;
        if length.0 == 0 {
            return Ok(PyBytes::new(py, b""));
        }
        let source = live.registered_range(source_address.0, length.0).map_err(PyValueError::new_err)?;
        let (bytes, memory) = unwritten_bytes(py, length.0)?;
        py.detach(|| Live::copy_out(&source, &memory)).map_err(PyValueError::new_err)?;
        Ok(bytes)
    }

    /// Makes memory known to peers. 0; -1 no bytes; -7 it shares bytes with registered memory. An object stands for its
    /// memory and is kept alive until it is unregistered.
    #[pyo3(signature = (buffer_addr, capacity, location="*", remote_accessible=true))]
    fn register_memory(
        &self,
        py: Python<'_>,
        buffer_addr: Place,
        capacity: Unsigned,
        location: &str,
        remote_accessible: bool,
    ) -> PyResult<i64> {
        buffer_addr.check(capacity.0, true)?;
        let Some(live) = self.live() else { return Ok(FAILED) };
        let entry = BufferEntry { address: buffer_addr.address, len: capacity.0 };
        let hold = buffer_addr.into_hold();
        let location = location.to_owned();
        let done = interruptible(py, move || live.register(entry, &location, remote_accessible, hold))?;
        Ok(number(&self.last, done, |()| 0))
    }

    /// Takes memory back: nothing of this engine uses it when this returns 0. -3: not registered.
    #[pyo3(signature = (buffer_addr, /))]
    fn unregister_memory(&self, py: Python<'_>, buffer_addr: Place) -> PyResult<i64> {
        let Some(live) = self.live() else { return Ok(FAILED) };
        let done = interruptible(py, move || live.unregister(buffer_addr.address))?;
        Ok(number(&self.last, done, |()| 0))
    }

    /// As `register_memory` for many: all or none.
    #[pyo3(signature = (buffer_addresses, capacities, location="*"))]
    fn batch_register_memory(
        &self,
        py: Python<'_>,
        buffer_addresses: Vec<Place>,
        capacities: Vec<Unsigned>,
        location: &str,
    ) -> PyResult<i64> {
        if buffer_addresses.len() != capacities.len() {
            return Ok(self.refuse("lists of different lengths"));
        }
        let Some(live) = self.live() else { return Ok(FAILED) };
        let mut entries = Vec::with_capacity(capacities.len());
        let mut holds = Vec::new();
        for (place, capacity) in buffer_addresses.into_iter().zip(capacities) {
            place.check(capacity.0, true)?;
            let address = place.address;
            entries.push(BufferEntry { address, len: capacity.0 });
            holds.extend(place.into_hold().map(|hold| (address, hold)));
        }
        let location = location.to_owned();
        let done = interruptible(py, move || live.register_many(&entries, &location, holds))?;
        Ok(number(&self.last, done, |()| 0))
    }

    /// As `unregister_memory` for many; all that are registered are taken back.
    #[pyo3(signature = (buffer_addresses, /))]
    fn batch_unregister_memory(&self, py: Python<'_>, buffer_addresses: Vec<Place>) -> PyResult<i64> {
        let Some(live) = self.live() else { return Ok(FAILED) };
        let addresses: Vec<u64> = buffer_addresses.iter().map(|place| place.address).collect();
        let done = interruptible(py, move || live.unregister_many(&addresses))?;
        Ok(number(&self.last, done, |()| 0))
    }

    /// Waits until all of these batches have ended, each within its time. 0, or -1 when one failed. All numbers are
    /// spent.
    #[pyo3(signature = (batch_ids, /))]
    fn get_batch_transfer_status(&self, py: Python<'_>, batch_ids: Vec<Unsigned>) -> PyResult<i64> {
        let Some(live) = self.live() else { return Ok(if batch_ids.is_empty() { 0 } else { FAILED }) };
        let mut answer = 0;
        for id in Unsigned::list(&batch_ids) {
            let one = self.finish(py, &live, BatchId(id), Interrupted::GoOn)?;
            answer = if answer == 0 { one } else { answer };
        }
        Ok(answer)
    }

    /// 1 done, -1 failed or unknown, -2 timed out, 0 under way; all but 0 spend the number.
    #[pyo3(signature = (batch_id, /))]
    fn transfer_check_status(&self, py: Python<'_>, batch_id: Unsigned) -> i64 {
        let Some(live) = self.live() else { return FAILED };
        match py.detach(|| live.state(BatchId(batch_id.0))) {
            Ok(state) => state,
            Err(error) => self.refuse(&error.to_string()),
        }
    }

    /// First registered address of a segment, asked of its owner; 0 when there is none or nobody answers.
    #[pyo3(signature = (segment_name, /))]
    fn get_first_buffer_address(&self, py: Python<'_>, segment_name: Text) -> PyResult<u64> {
        let Some(live) = self.live() else { return Ok(0) };
        let asked = interruptible(py, move || live.classic().first_buffer_address(&segment_name.0))?;
        Ok(asked.map(Option::unwrap_or_default).unwrap_or_else(|error| {
            self.refuse(&error.to_string());
            0
        }))
    }

    /// Notifications that peers left since the last call, oldest first.
    fn get_notifies(&self) -> Vec<TransferNotify> {
        let taken = self.live().map(|live| live.classic().take_notifies()).unwrap_or_default();
        taken.into_iter().map(TransferNotify::of).collect()
    }

    /// Whether a peer's process answers: 0, or a code.
    #[pyo3(signature = (peer_server_name))]
    fn send_probe(&self, py: Python<'_>, peer_server_name: Text) -> PyResult<i64> {
        let Some(live) = self.live() else { return Ok(FAILED) };
        let answer = interruptible(py, move || live.probe(&peer_server_name.0))?;
        Ok(number(&self.last, answer, |()| 0))
    }

    /// Nothing has to be warmed up: 0, or -1 when not initialized.
    #[pyo3(signature = (segment_name))]
    fn warmup_efa_segment(&self, segment_name: Text) -> i64 {
        let _ = segment_name;
        self.live().map_or(FAILED, |_| 0)
    }

    /// The engine for other modules; `RuntimeError` when not initialized.
    fn get_engine(&self) -> PyResult<InnerTransferEngine> {
        self.live().map(InnerTransferEngine).ok_or_else(not_initialized)
    }

    /// A number that stands for the engine while it lives; 0 when not initialized.
    fn get_engine_ptr(&self) -> u64 {
        self.live().map_or(0, |live| Arc::as_ptr(&live) as u64)
    }

    /// Writes `length` bytes to the peer. 0, or -1.
    #[pyo3(signature = (target_hostname, buffer, peer_buffer_address, length, transport_hint="", nic_hint=""))]
    fn transfer_sync_write(
        &self,
        py: Python<'_>,
        target_hostname: Text,
        buffer: Place,
        peer_buffer_address: Unsigned,
        length: Unsigned,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<i64> {
        let _ = transport_hint;
        let lists = Lists::one(buffer, peer_buffer_address, length);
        self.sync(py, target_hostname, Opcode::Write, lists, Extra { notify: None, nic_hint })
    }

    /// Reads `length` bytes from the peer. 0, or -1.
    #[pyo3(signature = (target_hostname, buffer, peer_buffer_address, length, transport_hint="", nic_hint=""))]
    fn transfer_sync_read(
        &self,
        py: Python<'_>,
        target_hostname: Text,
        buffer: Place,
        peer_buffer_address: Unsigned,
        length: Unsigned,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<i64> {
        let _ = transport_hint;
        let lists = Lists::one(buffer, peer_buffer_address, length);
        self.sync(py, target_hostname, Opcode::Read, lists, Extra { notify: None, nic_hint })
    }

    /// As the two above, with a notification that the peer gets when all has arrived. 0, or -1.
    #[pyo3(signature = (target_hostname, buffer, peer_buffer_address, length, opcode, notify=None, transport_hint="", nic_hint=""))]
    fn transfer_sync(
        &self,
        py: Python<'_>,
        target_hostname: Text,
        buffer: Place,
        peer_buffer_address: Unsigned,
        length: Unsigned,
        opcode: TransferOpcode,
        notify: Option<&TransferNotify>,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<i64> {
        let _ = transport_hint;
        let Some(op) = opcode_of(opcode) else { return Ok(self.refuse("no such opcode")) };
        let lists = Lists::one(buffer, peer_buffer_address, length);
        self.sync(py, target_hostname, op, lists, Extra { notify, nic_hint })
    }

    /// Writes many ranges. 0, or -1 when any failed; nothing is under way any more then.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint="", nic_hint=""))]
    fn batch_transfer_sync_write(
        &self,
        py: Python<'_>,
        target_hostname: Text,
        buffers: Vec<Place>,
        peer_buffer_addresses: Vec<Unsigned>,
        lengths: Vec<Unsigned>,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<i64> {
        let _ = transport_hint;
        let lists = Lists { here: buffers, there: peer_buffer_addresses, lengths };
        self.sync(py, target_hostname, Opcode::Write, lists, Extra { notify: None, nic_hint })
    }

    /// Reads many ranges. 0, or -1.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint="", nic_hint=""))]
    fn batch_transfer_sync_read(
        &self,
        py: Python<'_>,
        target_hostname: Text,
        buffers: Vec<Place>,
        peer_buffer_addresses: Vec<Unsigned>,
        lengths: Vec<Unsigned>,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<i64> {
        let _ = transport_hint;
        let lists = Lists { here: buffers, there: peer_buffer_addresses, lengths };
        self.sync(py, target_hostname, Opcode::Read, lists, Extra { notify: None, nic_hint })
    }

    /// As the two above, with a notification that the peer gets when all has arrived. 0, or -1.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, opcode, notify=None, transport_hint="", nic_hint=""))]
    fn batch_transfer_sync(
        &self,
        py: Python<'_>,
        target_hostname: Text,
        buffers: Vec<Place>,
        peer_buffer_addresses: Vec<Unsigned>,
        lengths: Vec<Unsigned>,
        opcode: TransferOpcode,
        notify: Option<&TransferNotify>,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<i64> {
        let _ = transport_hint;
        let Some(op) = opcode_of(opcode) else { return Ok(self.refuse("no such opcode")) };
        let lists = Lists { here: buffers, there: peer_buffer_addresses, lengths };
        self.sync(py, target_hostname, op, lists, Extra { notify, nic_hint })
    }

    /// Starts writing many ranges; gives a number for `get_batch_transfer_status`, or 0.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint="", nic_hint=""))]
    fn batch_transfer_async_write(
        &self,
        py: Python<'_>,
        target_hostname: Text,
        buffers: Vec<Place>,
        peer_buffer_addresses: Vec<Unsigned>,
        lengths: Vec<Unsigned>,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<u64> {
        let _ = transport_hint;
        let lists = Lists { here: buffers, there: peer_buffer_addresses, lengths };
        self.start(py, target_hostname, Opcode::Write, lists, nic_hint)
    }

    /// Starts reading many ranges; gives a number, or 0.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint="", nic_hint=""))]
    fn batch_transfer_async_read(
        &self,
        py: Python<'_>,
        target_hostname: Text,
        buffers: Vec<Place>,
        peer_buffer_addresses: Vec<Unsigned>,
        lengths: Vec<Unsigned>,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<u64> {
        let _ = transport_hint;
        let lists = Lists { here: buffers, there: peer_buffer_addresses, lengths };
        self.start(py, target_hostname, Opcode::Read, lists, nic_hint)
    }

    /// As the two above.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, opcode, transport_hint="", nic_hint=""))]
    fn batch_transfer_async(
        &self,
        py: Python<'_>,
        target_hostname: Text,
        buffers: Vec<Place>,
        peer_buffer_addresses: Vec<Unsigned>,
        lengths: Vec<Unsigned>,
        opcode: TransferOpcode,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<u64> {
        let _ = transport_hint;
        let Some(op) = opcode_of(opcode) else {
            self.refuse("no such opcode");
            return Ok(0);
        };
        let lists = Lists { here: buffers, there: peer_buffer_addresses, lengths };
        self.start(py, target_hostname, op, lists, nic_hint)
    }

    /// Starts writing one range; gives a number for `transfer_check_status`, or 0.
    #[pyo3(signature = (target_hostname, buffer, peer_buffer_address, length, transport_hint="", nic_hint=""))]
    fn transfer_submit_write(
        &self,
        py: Python<'_>,
        target_hostname: Text,
        buffer: Place,
        peer_buffer_address: Unsigned,
        length: Unsigned,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<u64> {
        let _ = transport_hint;
        let lists = Lists::one(buffer, peer_buffer_address, length);
        self.start(py, target_hostname, Opcode::Write, lists, nic_hint)
    }

    /// As `batch_transfer_sync_write` for arrays of 8-byte integers. `TypeError` for other items, `ValueError` for arrays of different lengths.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint="", nic_hint=""))]
    fn batch_transfer_sync_write_arrays(
        &self,
        py: Python<'_>,
        target_hostname: Text,
        buffers: Words,
        peer_buffer_addresses: Words,
        lengths: Words,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<i64> {
        let _ = transport_hint;
        let ranges = arrays(buffers, peer_buffer_addresses, lengths)?;
        self.sync_ranges(py, target_hostname, Opcode::Write, ranges, nic_hint)
    }

    /// As `batch_transfer_sync_read` for arrays.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint="", nic_hint=""))]
    fn batch_transfer_sync_read_arrays(
        &self,
        py: Python<'_>,
        target_hostname: Text,
        buffers: Words,
        peer_buffer_addresses: Words,
        lengths: Words,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<i64> {
        let _ = transport_hint;
        let ranges = arrays(buffers, peer_buffer_addresses, lengths)?;
        self.sync_ranges(py, target_hostname, Opcode::Read, ranges, nic_hint)
    }

    /// As `batch_transfer_async_write` for arrays.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint="", nic_hint=""))]
    fn batch_transfer_async_write_arrays(
        &self,
        py: Python<'_>,
        target_hostname: Text,
        buffers: Words,
        peer_buffer_addresses: Words,
        lengths: Words,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<u64> {
        let _ = transport_hint;
        let ranges = arrays(buffers, peer_buffer_addresses, lengths)?;
        self.start_ranges(py, target_hostname, Opcode::Write, ranges, nic_hint)
    }

    /// As `batch_transfer_async_read` for arrays.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint="", nic_hint=""))]
    fn batch_transfer_async_read_arrays(
        &self,
        py: Python<'_>,
        target_hostname: Text,
        buffers: Words,
        peer_buffer_addresses: Words,
        lengths: Words,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<u64> {
        let _ = transport_hint;
        let ranges = arrays(buffers, peer_buffer_addresses, lengths)?;
        self.start_ranges(py, target_hostname, Opcode::Read, ranges, nic_hint)
    }

    /// Writes every field of every page. A row of `fields` is local base and stride, remote base and stride, length; `src_pages` are ours, `dst_pages` the peer's. `max_batch_size` ranges at a time, 0 for all.
    #[pyo3(signature = (target_hostname, src_pages, dst_pages, fields, max_batch_size=Unsigned(0), transport_hint="", nic_hint=""), text_signature = "($self, target_hostname, src_pages, dst_pages, fields, max_batch_size=0, transport_hint='', nic_hint='')")]
    fn batch_transfer_sync_write_pages(
        &self,
        py: Python<'_>,
        target_hostname: Text,
        src_pages: Words,
        dst_pages: Words,
        fields: Words,
        max_batch_size: Unsigned,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<i64> {
        let _ = transport_hint;
        let pages = PageArrays { here: src_pages, there: dst_pages, fields, max_batch_size };
        self.pages(py, target_hostname, Opcode::Write, pages, nic_hint)
    }

    /// Reads every field of every page; `src_pages` are ours here too.
    #[pyo3(signature = (target_hostname, src_pages, dst_pages, fields, max_batch_size=Unsigned(0), transport_hint="", nic_hint=""), text_signature = "($self, target_hostname, src_pages, dst_pages, fields, max_batch_size=0, transport_hint='', nic_hint='')")]
    fn batch_transfer_sync_read_pages(
        &self,
        py: Python<'_>,
        target_hostname: Text,
        src_pages: Words,
        dst_pages: Words,
        fields: Words,
        max_batch_size: Unsigned,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<i64> {
        let _ = transport_hint;
        let pages = PageArrays { here: src_pages, there: dst_pages, fields, max_batch_size };
        self.pages(py, target_hostname, Opcode::Read, pages, nic_hint)
    }

    /// Starts writing pieces between pairs of regions; a refusal is found in the ticket.
    #[pyo3(signature = (
        endpoint, local_base_addresses, local_capacities, remote_base_addresses, remote_capacities, local_offsets,
        remote_offsets, lengths
    ))]
    fn submit_scatter_write(
        &self,
        py: Python<'_>,
        endpoint: Text,
        local_base_addresses: Vec<Unsigned>,
        local_capacities: Vec<Unsigned>,
        remote_base_addresses: Vec<Unsigned>,
        remote_capacities: Vec<Unsigned>,
        local_offsets: Vec<Vec<Unsigned>>,
        remote_offsets: Vec<Vec<Unsigned>>,
        lengths: Vec<Vec<Unsigned>>,
    ) -> PyResult<ScatterTransferTicket> {
        let lists = ScatterLists {
            local: local_base_addresses,
            local_capacities,
            remote: remote_base_addresses,
            remote_capacities,
            local_offsets,
            remote_offsets,
            lengths,
        };
        self.scatter(py, endpoint, Opcode::Write, lists)
    }

    /// Starts reading pieces between pairs of regions.
    #[pyo3(signature = (
        endpoint, local_base_addresses, local_capacities, remote_base_addresses, remote_capacities, local_offsets,
        remote_offsets, lengths
    ))]
    fn submit_scatter_read(
        &self,
        py: Python<'_>,
        endpoint: Text,
        local_base_addresses: Vec<Unsigned>,
        local_capacities: Vec<Unsigned>,
        remote_base_addresses: Vec<Unsigned>,
        remote_capacities: Vec<Unsigned>,
        local_offsets: Vec<Vec<Unsigned>>,
        remote_offsets: Vec<Vec<Unsigned>>,
        lengths: Vec<Vec<Unsigned>>,
    ) -> PyResult<ScatterTransferTicket> {
        let lists = ScatterLists {
            local: local_base_addresses,
            local_capacities,
            remote: remote_base_addresses,
            remote_capacities,
            local_offsets,
            remote_offsets,
            lengths,
        };
        self.scatter(py, endpoint, Opcode::Read, lists)
    }

    /// As `submit_scatter_write`, and waits for the end.
    #[pyo3(signature = (
        endpoint, local_base_addresses, local_capacities, remote_base_addresses, remote_capacities, local_offsets,
        remote_offsets, lengths
    ))]
    fn scatter_transfer_sync_write_with_ticket(
        &self,
        py: Python<'_>,
        endpoint: Text,
        local_base_addresses: Vec<Unsigned>,
        local_capacities: Vec<Unsigned>,
        remote_base_addresses: Vec<Unsigned>,
        remote_capacities: Vec<Unsigned>,
        local_offsets: Vec<Vec<Unsigned>>,
        remote_offsets: Vec<Vec<Unsigned>>,
        lengths: Vec<Vec<Unsigned>>,
    ) -> PyResult<ScatterTransferTicket> {
        let lists = ScatterLists {
            local: local_base_addresses,
            local_capacities,
            remote: remote_base_addresses,
            remote_capacities,
            local_offsets,
            remote_offsets,
            lengths,
        };
        self.scatter_now(py, endpoint, Opcode::Write, lists)
    }

    /// As `submit_scatter_read`, and waits for the end.
    #[pyo3(signature = (
        endpoint, local_base_addresses, local_capacities, remote_base_addresses, remote_capacities, local_offsets,
        remote_offsets, lengths
    ))]
    fn scatter_transfer_sync_read_with_ticket(
        &self,
        py: Python<'_>,
        endpoint: Text,
        local_base_addresses: Vec<Unsigned>,
        local_capacities: Vec<Unsigned>,
        remote_base_addresses: Vec<Unsigned>,
        remote_capacities: Vec<Unsigned>,
        local_offsets: Vec<Vec<Unsigned>>,
        remote_offsets: Vec<Vec<Unsigned>>,
        lengths: Vec<Vec<Unsigned>>,
    ) -> PyResult<ScatterTransferTicket> {
        let lists = ScatterLists {
            local: local_base_addresses,
            local_capacities,
            remote: remote_base_addresses,
            remote_capacities,
            local_offsets,
            remote_offsets,
            lengths,
        };
        self.scatter_now(py, endpoint, Opcode::Read, lists)
    }

    /// Needs CUDA streams: `RuntimeError`.
    #[pyo3(signature = (target_hostname, buffer, peer_buffer_address, length, stream_ptr=Unsigned(0), transport_hint="", nic_hint=""), text_signature = "($self, target_hostname, buffer, peer_buffer_address, length, stream_ptr=0, transport_hint='', nic_hint='')")]
    fn transfer_write_on_cuda(
        &self,
        target_hostname: Text,
        buffer: Place,
        peer_buffer_address: Unsigned,
        length: Unsigned,
        stream_ptr: Unsigned,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<()> {
        let _ = (target_hostname, buffer, peer_buffer_address, length, stream_ptr, transport_hint, nic_hint);
        self.on_cuda()
    }

    /// Needs CUDA streams: `RuntimeError`.
    #[pyo3(signature = (target_hostname, buffer, peer_buffer_address, length, stream_ptr=Unsigned(0), transport_hint="", nic_hint=""), text_signature = "($self, target_hostname, buffer, peer_buffer_address, length, stream_ptr=0, transport_hint='', nic_hint='')")]
    fn transfer_read_on_cuda(
        &self,
        target_hostname: Text,
        buffer: Place,
        peer_buffer_address: Unsigned,
        length: Unsigned,
        stream_ptr: Unsigned,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<()> {
        let _ = (target_hostname, buffer, peer_buffer_address, length, stream_ptr, transport_hint, nic_hint);
        self.on_cuda()
    }

    /// Needs CUDA streams: `RuntimeError`.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, stream_ptr=Unsigned(0), transport_hint="", nic_hint=""), text_signature = "($self, target_hostname, buffers, peer_buffer_addresses, lengths, stream_ptr=0, transport_hint='', nic_hint='')")]
    fn batch_transfer_write_on_cuda(
        &self,
        target_hostname: Text,
        buffers: Vec<Place>,
        peer_buffer_addresses: Vec<Unsigned>,
        lengths: Vec<Unsigned>,
        stream_ptr: Unsigned,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<()> {
        let _ = (target_hostname, buffers, peer_buffer_addresses, lengths, stream_ptr, transport_hint, nic_hint);
        self.on_cuda()
    }

    /// Needs CUDA streams: `RuntimeError`.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, stream_ptr=Unsigned(0), transport_hint="", nic_hint=""), text_signature = "($self, target_hostname, buffers, peer_buffer_addresses, lengths, stream_ptr=0, transport_hint='', nic_hint='')")]
    fn batch_transfer_read_on_cuda(
        &self,
        target_hostname: Text,
        buffers: Vec<Place>,
        peer_buffer_addresses: Vec<Unsigned>,
        lengths: Vec<Unsigned>,
        stream_ptr: Unsigned,
        transport_hint: &str,
        nic_hint: &str,
    ) -> PyResult<()> {
        let _ = (target_hostname, buffers, peer_buffer_addresses, lengths, stream_ptr, transport_hint, nic_hint);
        self.on_cuda()
    }
}
