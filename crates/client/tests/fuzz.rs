//! The JSON file of a client, mutated: a configuration or an error that names the file or a field, never a panic.
#![allow(clippy::unwrap_used, reason = "a test may")]

use yb_client::ClientConfig;
use yb_env::Rng;

const FILES: u64 = 5_000;
const GOOD: &str = r#"{"local_hostname": "10.0.0.5", "metadata_server": "P2PHANDSHAKE", "master_server_address": "m:50051",
    "global_segment_size": "1.5GB", "local_buffer_size": 4096, "protocol": " TCP ", "tenant_id": "a", "device_name": null,
    "enable_client_http_server": true, "client_http_port": 0}"#;
/// Longest error that may come of a short file.
const LONGEST: usize = 4096;

fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    const PIECES: [&[u8]; 14] = [
        b"null",
        b"true",
        b"[]",
        b"{}",
        b"-1",
        b"1e999",
        b"\"1e9GB\"",
        b"18446744073709551616",
        b"\"\"",
        b"\"\\ud800\"",
        b"0.5",
        b"\"a:b:c\"",
        b"\xff",
        b"\"999999999999TB\"",
    ];
    for _ in 0..1 + rng.below(4) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        let piece = PIECES[rng.below(PIECES.len() as u64) as usize];
        match rng.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.next_u64() as u8),
            // In the place of a value.
            2 | 3 => {
                let Some(colon) = bytes[at..].iter().position(|byte| *byte == b':').map(|colon| at + colon + 1) else {
                    continue;
                };
                let end =
                    bytes[colon..].iter().position(|byte| b",}".contains(byte)).map_or(bytes.len(), |end| colon + end);
                bytes.splice(colon..end, piece.iter().copied()).for_each(drop);
            }
            _ => bytes.splice(at..at, piece.iter().copied()).for_each(drop),
        }
    }
}

#[test]
fn mutated_files_are_configurations_or_errors() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let load = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        ClientConfig::load(&|name| (name == "MOONCAKE_CONFIG_PATH").then(|| path.clone()))
    };
    load(GOOD.as_bytes()).unwrap();
    let mut rng = Rng::seeded(1);
    let mut taken = 0;
    for turn in 0..FILES {
        let mut bytes = GOOD.as_bytes().to_vec();
        mutate(&mut rng, &mut bytes);
        match load(&bytes) {
            Ok(config) => {
                taken += 1;
                // What is taken once is taken again.
                assert!(config.check(None).is_ok(), "turn {turn}: {}", bytes.escape_ascii());
            }
            Err(error) => assert!(error.to_string().len() < LONGEST, "turn {turn}: {error}"),
        }
    }
    assert!((1..FILES).contains(&taken), "{taken}");
    let deep = ["[".repeat(100_000), format!("{{\"a\":{}", "[".repeat(100_000))];
    assert!(deep.iter().all(|text| load(text.as_bytes()).is_err()));
}
