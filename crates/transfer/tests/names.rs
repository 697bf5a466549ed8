//! Engines that find each other by name in a metadata store.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use yb_env::{Clock, Rng};
use yb_metadata::{Keys, Lease, MemoryStore, MetadataStore, RpcMeta};
use yb_transfer::{Access, Engine, EngineSettings, ForeignMemory, SegmentDesc, StartError, TransferErrorKind};

fn store() -> Arc<dyn MetadataStore> {
    Arc::new(MemoryStore::new("memory", Clock::real()))
}

fn settings() -> EngineSettings {
    EngineSettings { connect_timeout: Duration::from_secs(2), ..tcp_settings() }
}

fn named(store: &Arc<dyn MetadataStore>, name: &str) -> Engine {
    Engine::builder().settings(settings()).metadata(Arc::clone(store)).name(name).build().unwrap()
}

fn stored(store: &Arc<dyn MetadataStore>, name: &str) -> SegmentDesc {
    SegmentDesc::parse(&store.get(&Keys::default().segment(name)).unwrap().unwrap()).unwrap()
}

/// Writes through a segment of `from` and reads back.
fn moves(from: &Engine, name: &str, remote: u64) -> Result<(), TransferErrorKind> {
    let segment = from.open_segment(name).unwrap();
    let bytes = pattern(4096, 1);
    let mut back = vec![0; bytes.len()];
    let deadline = from.now() + PATIENCE;
    for request in [write(&segment, remote, &bytes), read(&segment, remote, &mut back)] {
        let outcome = from.transfer_sync(&[request], deadline);
        outcome.results()[0].clone().map_err(|error| error.kind())?;
    }
    assert_eq!(back, bytes);
    Ok(())
}

#[test]
fn engines_find_each_other_by_name_and_leave_nothing() {
    let store = store();
    let (a, b) = (named(&store, "nodeA:44201"), named(&store, "nodeB:44202"));
    assert_eq!(a.name(), Some("nodeA:44201"));
    let memory = memory(&b, 1 << 20);
    let desc = stored(&store, "nodeB:44202");
    assert_eq!(desc.buffers.iter().map(|buffer| buffer.address).collect::<Vec<_>>(), [memory.address()]);
    assert_eq!((desc.name.as_str(), desc.buffers[0].name.as_str()), ("nodeB:44202", "nodeB:44202"));
    moves(&a, "nodeB:44202", memory.address()).unwrap();
    let segment = a.open_segment("nodeB:44202").unwrap();
    a.probe(&segment, a.now() + PATIENCE).unwrap();
    b.shutdown();
    a.shutdown();
    for key in ["nodeA:44201", "nodeB:44202"] {
        assert_eq!(store.get(&Keys::default().segment(key)).unwrap(), None);
        assert_eq!(store.get(&Keys::default().rpc_meta(key)).unwrap(), None);
    }
}

#[test]
fn every_change_is_published_with_a_larger_version_and_held_ones_together() {
    let store = store();
    let engine = named(&store, "n");
    let first = stored(&store, "n");
    assert!(first.buffers.is_empty(), "an engine starts from an empty description");
    let one = memory(&engine, 4096);
    let second = stored(&store, "n");
    assert!(second.metadata_version > first.metadata_version && first.metadata_version > Some(1_700_000_000_000_000));
    engine.publish_together(|| {
        let _ = memory(&engine, 4096);
        let _ = memory(&engine, 4096);
        assert_eq!(stored(&store, "n"), second, "nothing is written before all is done");
    });
    assert_eq!(stored(&store, "n").buffers.len(), 3);
    engine.unregister(one.address(), PATIENCE).unwrap();
    assert_eq!(stored(&store, "n").buffers.len(), 2);
    assert_eq!(engine.own_desc().metadata_version, stored(&store, "n").metadata_version);
}

#[test]
fn the_record_of_a_dead_process_is_replaced_and_that_of_a_live_one_is_not() {
    let store = store();
    // Left behind by a process without a lease, as the peer's engines leave it: nobody listens there.
    let gone = RpcMeta { host: "127.0.0.1".to_owned(), port: 1, metadata_version: None };
    store.put(&Keys::default().rpc_meta("n"), &gone.to_json(), None).unwrap();
    let future = r#"{"buffers":[{"addr":4096,"length":8,"name":"n"}],"metadata_version":99999999999999999,"name":"n"}"#;
    store.put(&Keys::default().segment("n"), future.as_bytes(), None).unwrap();
    let engine = named(&store, "n");
    let desc = stored(&store, "n");
    assert!(desc.buffers.is_empty(), "buffers of the dead are not published again");
    assert_eq!(desc.metadata_version, Some(100_000_000_000_000_001), "readers that know the old one take ours");
    // Somebody without an instance of his own keeps his name while he lives.
    let record = store.get(&Keys::default().rpc_meta("n")).unwrap().unwrap();
    let plain: Arc<dyn MetadataStore> = Arc::new(Plain(Arc::clone(&store)));
    let refused = Engine::builder().settings(settings()).metadata(plain).name("n").build();
    assert!(matches!(refused, Err(StartError::NameTaken { .. })), "{refused:?}");
    assert_eq!(store.get(&Keys::default().rpc_meta("n")).unwrap().unwrap(), record);
    drop(engine);
}

/// A store without leases, as the peer's HTTP server.
#[derive(Debug)]
struct Plain(Arc<dyn MetadataStore>);

impl MetadataStore for Plain {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, yb_metadata::StoreError> {
        self.0.get(key)
    }
    fn put(&self, key: &str, value: &[u8], _: Option<&Lease>) -> Result<(), yb_metadata::StoreError> {
        self.0.put(key, value, None)
    }
    fn delete(&self, key: &str) -> Result<bool, yb_metadata::StoreError> {
        self.0.delete(key)
    }
    fn address(&self) -> &str {
        self.0.address()
    }
}

#[test]
fn a_stale_record_is_never_taken_for_a_live_engine() {
    let store = store();
    let reader = named(&store, "reader");
    let other = named(&store, "other");
    let memory = memory(&other, 4096);
    // The port of the dead process belongs to another engine now.
    let (host, port) = other.endpoint().unwrap().rsplit_once(':').unwrap();
    let record = RpcMeta { host: host.to_owned(), port: port.parse().unwrap(), metadata_version: None };
    store.put(&Keys::default().rpc_meta("dead"), &record.to_json(), None).unwrap();
    let desc = store.get(&Keys::default().segment("other")).unwrap().unwrap();
    store.put(&Keys::default().segment("dead"), &desc, None).unwrap();
    assert_eq!(moves(&reader, "dead", memory.address()), Err(TransferErrorKind::Unreachable));
    // Nobody listens at the address.
    let record = RpcMeta { port: 1, ..record };
    store.put(&Keys::default().rpc_meta("gone"), &record.to_json(), Some(&lease())).unwrap();
    assert_eq!(moves(&reader, "gone", memory.address()), Err(TransferErrorKind::Unreachable));
    assert_eq!(moves(&reader, "nobody", memory.address()), Err(TransferErrorKind::Unreachable));
    assert!(reader.open_segment("").is_err() && reader.open_segment("a\nb").is_err());
}

fn lease() -> Lease {
    Lease::new(Duration::from_secs(60), &mut Rng::seeded(1))
}

#[test]
fn a_restart_under_the_same_name_is_noticed_by_who_knew_the_old_engine() {
    let store = store();
    let reader = named(&store, "reader");
    for _ in 0..3 {
        let engine = named(&store, "n");
        let memory = memory(&engine, 8192);
        moves(&reader, "n", memory.address()).unwrap();
        engine.shutdown();
        assert!(moves(&reader, "n", memory.address()).is_err());
    }
}

#[test]
fn records_that_a_store_lost_are_written_again_and_a_lost_name_is_given_up() {
    let store = store();
    let fast = EngineSettings { metadata_lease: Duration::from_secs(1), ..settings() };
    let build = || Engine::builder().settings(fast.clone()).metadata(Arc::clone(&store)).name("n").build().unwrap();
    let first = build();
    let _memory = memory(&first, 4096);
    let key = Keys::default().rpc_meta("n");
    let record = store.get(&key).unwrap().unwrap();
    store.delete(&key).unwrap();
    let clock = Clock::real();
    let until = clock.now() + PATIENCE;
    while store.get(&key).unwrap().is_none() {
        assert!(clock.now() < until, "the record did not come back");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let second = build();
    let newer = store.get(&key).unwrap().unwrap();
    assert_ne!(newer, record);
    // The older one notices, and takes nothing away when it goes.
    let until = clock.now() + Duration::from_secs(2);
    while clock.now() < until {
        std::thread::park_timeout(Duration::from_millis(50));
        assert_eq!(store.get(&key).unwrap().as_ref(), Some(&newer));
    }
    first.shutdown();
    assert_eq!(store.get(&key).unwrap(), Some(newer));
    assert!(stored(&store, "n").buffers.is_empty());
    second.shutdown();
    assert_eq!(store.get(&key).unwrap(), None);
}

#[test]
fn who_loses_its_name_to_a_newer_engine_knows_it_at_once_and_by_whom() {
    let store = store();
    // Renewals alone would tell it after a hundred seconds.
    let slow = EngineSettings { metadata_lease: Duration::from_secs(300), ..settings() };
    let build = || Engine::builder().settings(slow.clone()).metadata(Arc::clone(&store)).name("n").build().unwrap();
    let first = build();
    assert_eq!((first.name_taken_by(), first.confirm_name()), (None, None));
    let second = build();
    eventually("the older engine knows", || first.name_taken_by().as_deref() == second.endpoint());
    assert_eq!((second.name_taken_by(), second.confirm_name()), (None, None));
    let third = build();
    eventually("the second one knows", || second.name_taken_by().as_deref() == third.endpoint());
    assert_eq!(first.confirm_name().as_deref(), second.endpoint(), "what was lost stays lost");
}

/// How many buffers of `name` an engine knows without asking for more than its settings say.
fn known(engine: &Engine, name: &str) -> Result<usize, TransferErrorKind> {
    let segment = engine.open_segment(name).unwrap();
    let regions = engine.remote_regions(&segment, false, engine.now() + PATIENCE);
    regions.map(|regions| regions.len()).map_err(|error| error.kind())
}

#[test]
fn what_is_known_of_a_peer_ages_as_the_settings_say() {
    let store = store();
    let clock = Clock::manual();
    let reader = |name: &str, age: Option<Duration>| {
        let settings = EngineSettings { metadata_max_age: age, ..settings() };
        let builder = Engine::builder().settings(settings).metadata(Arc::clone(&store)).name(name);
        builder.clock(clock.clone()).build().unwrap()
    };
    let never = reader("never", None);
    let always = reader("always", Some(Duration::ZERO));
    let ten = reader("ten", Some(Duration::from_secs(10)));
    let owner = named(&store, "owner");
    let see = || [&never, &always, &ten].map(|engine| known(engine, "owner").ok());
    assert_eq!(see(), [Some(0); 3]);
    let _memory = memory(&owner, 4096);
    assert_eq!(see(), [Some(0), Some(1), Some(0)]);
    clock.advance(Duration::from_secs(10));
    assert_eq!(see(), [Some(0), Some(1), Some(1)]);
    owner.shutdown();
    clock.advance(Duration::from_secs(10));
    assert_eq!(see(), [Some(0), None, Some(1)], "what is only old serves while nobody answers");
}

#[test]
fn clusters_in_one_store_do_not_see_each_other() {
    let store = store();
    let build = |cluster: &str| {
        let settings = EngineSettings { metadata_cluster: cluster.to_owned(), ..settings() };
        Engine::builder().settings(settings).metadata(Arc::clone(&store)).name("n").build().unwrap()
    };
    let (a, b) = (build("a"), build("b/"));
    let _memory = memory(&a, 4096);
    let outside = named(&store, "outside");
    assert_eq!((known(&a, "n"), known(&b, "n")), (Ok(1), Ok(0)));
    assert_eq!(known(&outside, "n"), Err(TransferErrorKind::Unreachable));
    assert!(store.get("mooncake/a/ram/n").unwrap().is_some() && store.get("mooncake/b/rpc_meta/n").unwrap().is_some());
}

#[test]
fn published_files_are_one_segment_for_each_reader_at_its_own_paths() {
    let store = store();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, seed: u64| {
        let path = folder.path().join(name);
        std::fs::write(&path, pattern(5000, seed)).unwrap();
        let local = [("reader".to_owned(), path.display().to_string())];
        yb_transfer::SharedFile { path: format!("/dev/{name}"), len: 5000, local_paths: local.into() }
    };
    let files = [file("one", 1), file("two", 2)];
    let (owner, reader) = (named(&store, "owner"), named(&store, "reader"));
    owner.publish_files("nvmeof/pool", &files).unwrap();
    let segment = reader.open_segment("nvmeof/pool").unwrap();
    let mut got = vec![0; 2000];
    reader.transfer_sync(&[read(&segment, 4000, &mut got)], reader.now() + PATIENCE).into_result().unwrap();
    assert!(got == [&pattern(5000, 1)[4000..], &pattern(5000, 2)[..1000]].concat());
    for (name, files) in [("pool", &files[..]), ("nvmeof/none", &[]), ("file://a/b", &files[..])] {
        let refused = owner.publish_files(name, files).unwrap_err();
        assert_eq!(refused.kind(), TransferErrorKind::InvalidRequest, "{name}");
    }
    let without_store = engine(tcp_settings());
    assert!(without_store.publish_files("nvmeof/pool", &files).is_err());
    assert_eq!((owner.withdraw_files("nvmeof/pool"), owner.withdraw_files("nvmeof/pool")), (Ok(true), Ok(false)));
    assert_eq!(reader.open_segment("nvmeof/pool").unwrap_err().kind(), TransferErrorKind::Unreachable);
}

#[test]
fn segments_of_files_are_opened_at_the_path_for_our_name_only() {
    let store = store();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blob");
    std::fs::write(&path, pattern(8192, 5)).unwrap();
    let text = serde_json::json!({
        "buffers": [{"file_path": "/dev/nvme0n1", "length": 8192, "local_path_map": {"reader": path}}],
        "name": "nvmeof/seg0", "protocol": "nvmeof",
    });
    store.put("mooncake/nvmeof/seg0", text.to_string().as_bytes(), None).unwrap();
    let reader = named(&store, "reader");
    let segment = reader.open_segment("/nvmeof/seg0").unwrap();
    let mut got = vec![0; 4096];
    reader.transfer_sync(&[read(&segment, 4096, &mut got)], reader.now() + PATIENCE).into_result().unwrap();
    assert!(got == pattern(8192, 5)[4096..]);
    let other = named(&store, "other");
    assert_eq!(other.open_segment("nvmeof/seg0").unwrap_err().kind(), TransferErrorKind::InvalidRequest);
    assert_eq!(other.open_segment("nvmeof/seg1").unwrap_err().kind(), TransferErrorKind::Unreachable);
}

#[test]
fn descriptions_of_any_size_pass_between_our_engines() {
    const COUNT: u64 = 30_000;
    let store = store();
    let (reader, owner) = (named(&store, "reader"), named(&store, "owner"));
    let bytes = vec![7_u8; 64 * COUNT as usize];
    owner.publish_together(|| {
        for at in 0..COUNT {
            // SAFETY: `bytes` outlives the engine's use of it: the engine is shut down before the end.
            let part = unsafe { ForeignMemory::new(bytes.as_ptr() as u64 + 64 * at, 32) };
            owner.register_memory(part, Access::Remote).unwrap();
        }
    });
    assert!(store.get(&Keys::default().segment("owner")).unwrap().unwrap().len() > 1 << 20);
    assert_eq!(known(&reader, "owner"), Ok(COUNT as usize));
    let segment = reader.open_segment("owner").unwrap();
    let mut got = [0; 32];
    let last = bytes.as_ptr() as u64 + 64 * (COUNT - 1);
    reader.transfer_sync(&[read(&segment, last, &mut got)], reader.now() + PATIENCE).into_result().unwrap();
    assert_eq!(got, [7; 32]);
    owner.shutdown();
}
