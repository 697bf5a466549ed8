//! Two engines of one program: one writes into the memory of the other, reads it back, and leaves a message.
//!
//! `cargo run -p yb-classic --example two_engines`

use std::time::Duration;

use yb_classic::{
    BufferEntry, ClassicEngine, ClassicError, ClassicOptions, Notification, Opcode, P2P_HANDSHAKE, Range,
    SubmitOptions, SyncOptions, TransferRequest,
};

const LEN: usize = 1 << 20;

fn entry(memory: &[u8]) -> BufferEntry {
    BufferEntry { address: memory.as_ptr() as u64, len: memory.len() as u64 }
}

fn main() -> Result<(), ClassicError> {
    let start = || ClassicEngine::start(ClassicOptions::new(P2P_HANDSHAKE, "127.0.0.1"));
    let (initiator, target) = (start()?, start()?);
    let (local, remote, back) = (vec![7_u8; LEN], vec![0_u8; LEN], vec![0_u8; LEN]);
    // SAFETY: the vectors live until both engines were shut down, and are looked at only when nothing is in flight.
    unsafe {
        initiator.register_memory(entry(&local), "*", false)?;
        target.register_memory(entry(&remote), "*", true)?;
    }

    // With numbers, as C programs do it: a batch of one task, and a message that follows it.
    let segment = initiator.open_segment(target.name())?;
    let batch = initiator.allocate_batch(1)?;
    let write = TransferRequest {
        opcode: Opcode::Write,
        source: entry(&local).address,
        target: segment,
        target_offset: entry(&remote).address,
        length: LEN as u64,
    };
    let notify = Some(Notification { name: "initiator".to_owned(), message: "written".to_owned() });
    // SAFETY: as above.
    unsafe { initiator.submit(batch, &[write], &SubmitOptions { notify, ..SubmitOptions::default() })? };
    let status = initiator.wait_batch(batch, Duration::from_secs(10))?;
    println!("batch: {:?}, {} bytes", status.state, status.bytes);
    initiator.free_batch(batch)?;

    // By name, as Python programs do it.
    let range = Range { local: entry(&back).address, remote: entry(&remote).address, len: LEN as u64 };
    // SAFETY: as above.
    unsafe { initiator.transfer_sync(target.name(), Opcode::Read, &[range], &SyncOptions::default())? };

    initiator.shutdown();
    target.shutdown();
    println!("the bytes came back: {}", back == local);
    for message in target.take_notifies() {
        println!("{}: {}", message.name, message.message);
    }
    Ok(())
}
