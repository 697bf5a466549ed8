//! The contract of a transport, played on those that need no device.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use common::contract::Stage;
use common::*;
use yb_transfer::{EngineSettings, TransportKind};

fn play(settings: &EngineSettings, kind: TransportKind) {
    let (a, b) = (engine(settings.clone()), engine(settings.clone()));
    let memory = memory(&b, 4 << 20);
    let peer = open(&a, &b);
    Stage { a, b, memory, peer, kind }.play();
}

#[test]
fn inside_one_process() {
    play(&EngineSettings { in_process: true, ..tcp_settings() }, TransportKind::Local);
}

#[test]
fn shared_memory() {
    play(&EngineSettings { shm: true, ..tcp_settings() }, TransportKind::Shm);
}

#[test]
fn tcp() {
    play(&tcp_settings(), TransportKind::Tcp);
}

#[test]
fn tcp_in_many_stripes() {
    play(&EngineSettings { stripe_min: 4096, lanes_per_peer: 7, ..tcp_settings() }, TransportKind::Tcp);
}

#[test]
fn tcp_in_many_chunks() {
    play(&EngineSettings { chunk_bytes: 65_536, ..tcp_settings() }, TransportKind::Tcp);
}

/// On soft-RoCE rails, in the machine that `make test-rdma` boots.
#[test]
fn rdma() {
    if !has_rails() {
        return;
    }
    play(&EngineSettings { rdma: rdma_settings(&[]), ..tcp_settings() }, TransportKind::Rdma);
}
