//! Verbs on real devices: two soft-RoCE rails of the test machine (`make test-rdma`); skipped elsewhere.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::sync::Arc;

use yb_mem::{CopyHint, MemorySegment, SegmentOptions, Span};
use yb_verbs::*;

struct Side {
    context: Arc<Context>,
    domain: Arc<ProtectionDomain>,
    queue: Arc<CompletionQueue>,
    pair: QueuePair,
    memory: Arc<MemorySegment>,
    region: MemoryRegion<Arc<MemorySegment>>,
    gid: GidEntry,
}

const LEN: u64 = 1 << 20;

impl Side {
    fn open(verbs: &Verbs, name: &str) -> Side {
        let context = verbs.open(name).unwrap();
        let domain = ProtectionDomain::new(&context).unwrap();
        let queue = CompletionQueue::new(&context, 256).unwrap();
        let sizes = PairSizes { send: 64, receive: 16, pieces: 1, inline: 64 };
        let pair = QueuePair::new(&domain, &queue, sizes).unwrap();
        pair.initialise(1, 0).unwrap();
        let memory = Arc::new(MemorySegment::create(LEN, SegmentOptions::default()).unwrap());
        let access = MemoryAccess { local_write: true, remote: true, relaxed_ordering: true };
        let region = MemoryRegion::register(&domain, Arc::clone(&memory), (0, LEN), access).unwrap();
        let gid = context.gids(1).unwrap().into_iter().find(|gid| gid.index == 1).unwrap();
        assert_eq!(gid.kind, GidKind::RoceV2);
        assert!(gid.device.is_some() && context.port(1).unwrap().active);
        assert!(context.limits().unwrap().max_qp > 0);
        Side { context, domain, queue, pair, memory, region, gid }
    }

    fn connect(&self, peer: &Side) {
        let path = Path {
            port: 1,
            gid_index: self.gid.index,
            peer_gid: peer.gid.gid,
            peer_lid: 0,
            peer_qp: peer.pair.number(),
            mtu: 1024,
            traffic_class: 0,
            service_level: 0,
            reads: 16,
        };
        self.pair.ready_to_receive(&path).unwrap();
        self.pair.ready_to_send(Patience { timeout: 14, retries: 7 }, 16).unwrap();
    }

    fn fill(&self, bytes: &[u8]) {
        yb_mem::copy(self.memory.span().slice(0, bytes.len()).unwrap(), Span::source(bytes), CopyHint::Cached).unwrap();
    }

    fn wait(&self, count: usize) -> Vec<Completion> {
        let mut got = Vec::new();
        while got.len() < count {
            self.queue.arm().unwrap();
            if self.queue.poll(&mut got).unwrap() == 0 {
                let fd = self.queue.fd();
                let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
                let limit = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
                assert!(rustix::event::poll(&mut fds, Some(&limit)).unwrap() > 0, "a completion never came");
                self.queue.take_notifications();
            }
        }
        got
    }
}

fn request<'a>(kind: WorkKind, id: u64, local: LocalBytes<'a>, peer: &Side) -> WorkRequest<'a> {
    WorkRequest { id, kind, local, remote: peer.region.address(), rkey: peer.region.rkey(), signalled: true }
}

#[test]
fn bytes_go_both_ways_between_two_rails() {
    if std::env::var_os("RDMA_VM").is_none_or(|value| value != "1") {
        eprintln!("skipped: no soft-RoCE rails here (make test-rdma boots a machine that has them)");
        return;
    }
    let verbs = Verbs::load().unwrap();
    let names = verbs.devices().unwrap();
    assert!(names.len() >= 2, "{names:?}");
    let (a, b) = (Side::open(&verbs, &names[0]), Side::open(&verbs, &names[1]));
    a.connect(&b);
    b.connect(&a);

    let sent: Vec<u8> = (0..LEN).map(|i| (i * 7 + i / 251) as u8).collect();
    a.fill(&sent);
    let own = |side: &Side, len: u64| LocalBytes::Registered {
        address: side.region.address(),
        len: len as u32,
        lkey: side.region.lkey(),
    };
    // A list of writes of which only the last is told.
    let writes: Vec<WorkRequest<'_>> = (0..16)
        .map(|i| {
            let (offset, len) = (i * (LEN / 16), LEN / 16);
            let address = a.region.address() + offset;
            let local = LocalBytes::Registered { address, len: len as u32, lkey: a.region.lkey() };
            let remote = b.region.address() + offset;
            WorkRequest { remote, signalled: i == 15, ..request(WorkKind::Write, i, local, &b) }
        })
        .collect();
    a.pair.post(&writes).unwrap();
    let done = a.wait(1);
    assert_eq!((done[0].id, done[0].status, done[0].qp_num), (15, WorkStatus::Done, a.pair.number()));
    assert!(b.memory.span().to_vec() == sent);

    a.pair.post(&[request(WorkKind::Write, 20, LocalBytes::Inline(b"inline!"), &b)]).unwrap();
    assert_eq!(a.wait(1)[0].status, WorkStatus::Done);
    assert_eq!(b.memory.span().slice(0, 7).unwrap().to_vec(), b"inline!");

    b.pair.post(&[request(WorkKind::Read, 30, own(&b, LEN), &a)]).unwrap();
    assert_eq!(b.wait(1)[0].status, WorkStatus::Done);
    assert!(b.memory.span().to_vec() == sent);

    b.pair.post_receive(&Receive { id: 40, address: b.region.address(), len: 64, lkey: b.region.lkey() }).unwrap();
    a.pair.post(&[request(WorkKind::Send, 41, LocalBytes::Inline(b"hello"), &b)]).unwrap();
    let message = b.wait(1)[0];
    assert_eq!((message.id, message.received, message.len), (40, true, 5));
    a.wait(1);

    // A key that the peer does not know: refused, the pair breaks, what follows is flushed.
    let bad = WorkRequest { rkey: 0xdead_beef, ..request(WorkKind::Write, 50, own(&a, 64), &b) };
    a.pair.post(&[bad, WorkRequest { id: 51, ..bad }]).unwrap();
    let failed = a.wait(2);
    assert!(matches!(failed[0].status, WorkStatus::Refused(_)), "{failed:?}");
    assert_eq!((failed[1].id, failed[1].status), (51, WorkStatus::Flushed));

    // A pair that is told to stop gives everything back.
    b.pair.stop().unwrap();
    b.pair.post(&[request(WorkKind::Read, 60, own(&b, 64), &a)]).unwrap();
    assert_eq!(b.wait(1)[0].status, WorkStatus::Flushed);
    while a.context.next_event().is_some() || b.context.next_event().is_some() {}

    // Without its keys the memory cannot be reached; the memory itself lives on.
    let again = MemoryRegion::register(
        &a.domain,
        Arc::clone(&a.memory),
        (4096, 8192),
        MemoryAccess { local_write: false, remote: false, relaxed_ordering: false },
    )
    .unwrap();
    assert_eq!((again.address(), again.len()), (a.memory.address() + 4096, 8192));
    assert!(
        MemoryRegion::register(
            &a.domain,
            Arc::clone(&a.memory),
            (0, LEN + 1),
            MemoryAccess { local_write: true, remote: true, relaxed_ordering: false }
        )
        .is_err()
    );
}
