//! The module `mooncake.engine`: the Transfer Engine, shared segments of a group, and the side channel.
//!
//! The problem: consumers name memory by address, expect the peer's numbers, and call from the main thread of a process
//! that has to stay stoppable. This part converts, waits with signals let through, and keeps what a transfer uses alive.
//! `docs/python-engine.md` has every name.

mod address;
mod calls;
mod live;
mod managed;
mod notify;
mod pages;
mod received;
mod rpc_interface;
mod scatter;
mod shared_segment;
mod tensor;
mod transfer_engine;
mod wait;

pub(crate) use live::{Live as EngineLive, close_all};
pub(crate) use notify::{InnerTransferEngine, TransferNotify};
pub(crate) use received::{ReceivedData, ReceivedTensor};
pub(crate) use rpc_interface::{RpcInterface, client, server, settle, stop_all};
pub(crate) use scatter::ScatterTransferTicket;
pub(crate) use shared_segment::SharedSegment;
pub(crate) use transfer_engine::TransferEngine;
pub(crate) use wait::SLICE;
