//! A peer that says where its data port is, and nothing more.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// A peer whose handshake names a data port that accepts and never answers.
pub struct Mute {
    pub endpoint: String,
    _data: TcpListener,
}

impl Mute {
    pub fn start() -> Self {
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (data, handshake) = (listen(), listen());
        let port = data.local_addr().unwrap().port();
        let endpoint = handshake.local_addr().unwrap().to_string();
        yb_env::spawn_thread("handshake", move || {
            for stream in handshake.incoming() {
                // Who gives up in the middle is no matter: the next one is served.
                let _ = stream.and_then(|stream| answer(stream, port));
            }
        })
        .unwrap();
        Mute { endpoint, _data: data }
    }
}

fn answer(mut stream: TcpStream, port: u16) -> std::io::Result<()> {
    // Closing with the request unread would reset the connection, and with it what was answered.
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let mut request = vec![0; u64::from_le_bytes(length) as usize];
    stream.read_exact(&mut request)?;
    let json = format!("\x01{{\"tcp_data_port\":{port},\"tcp_proto_version\":2,\"tcp_data_host\":\"127.0.0.1\"}}");
    stream.write_all(&(json.len() as u64).to_le_bytes())?;
    stream.write_all(json.as_bytes())
}
