//! A network with bad days: stands between two engines, on the handshake port and on the data port.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// What happens to the bytes of one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Every piece comes later by this much.
    Delay(Duration),
    /// After so many bytes, both directions end.
    CutAfter(u64),
    /// The byte at this place comes with all its bits changed.
    Corrupt(u64),
    /// So many bytes a second.
    Throttle(u64),
    /// After so many bytes nothing more comes, though the connection stays: a half-open one.
    Stall(u64),
}

/// What happens to both directions of new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    pub to_server: Fault,
    pub to_client: Fault,
}

impl Weather {
    pub const FAIR: Weather = Weather { to_server: Fault::None, to_client: Fault::None };

    pub fn to_server(fault: Fault) -> Self {
        Weather { to_server: fault, to_client: Fault::None }
    }

    pub fn to_client(fault: Fault) -> Self {
        Weather { to_server: Fault::None, to_client: fault }
    }
}

/// How whole answers of the server are changed, where they are.
type Rewrite = Arc<dyn Fn(Vec<u8>) -> Vec<u8> + Send + Sync>;

struct Shared {
    upstream: SocketAddr,
    rewrite: Option<Rewrite>,
    weather: Mutex<Weather>,
    open: Mutex<Vec<TcpStream>>,
    accepted: AtomicU64,
    stop: AtomicBool,
}

/// Forwards connections to one port.
pub struct Proxy {
    shared: Arc<Shared>,
    pub address: SocketAddr,
}

impl Proxy {
    pub fn start(upstream: SocketAddr) -> Self {
        Proxy::with(upstream, None)
    }

    fn with(upstream: SocketAddr, rewrite: Option<Rewrite>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            upstream,
            rewrite,
            weather: Mutex::new(Weather::FAIR),
            open: Mutex::default(),
            accepted: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        yb_env::spawn_thread("proxy", move || {
            for client in listener.incoming() {
                if serving.stop.load(Ordering::SeqCst) {
                    return;
                }
                forward(&serving, client.unwrap());
            }
        })
        .unwrap();
        Proxy { shared, address }
    }

    /// What happens to connections from now on.
    pub fn set(&self, weather: Weather) {
        *self.shared.weather.lock() = weather;
    }

    /// Ends all connections that are open now.
    pub fn cut(&self) {
        for stream in self.shared.open.lock().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// How many connections were ever made.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.cut();
        let _ = TcpStream::connect(self.address);
    }
}

fn forward(shared: &Arc<Shared>, client: TcpStream) {
    shared.accepted.fetch_add(1, Ordering::SeqCst);
    let Ok(server) = TcpStream::connect(shared.upstream) else { return };
    let weather = *shared.weather.lock();
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
        shared.open.lock().push(stream.try_clone().unwrap());
    }
    let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    yb_env::spawn_thread("proxy", move || pump(from_client, to_server, weather.to_server)).unwrap();
    let rewrite = shared.rewrite.clone();
    yb_env::spawn_thread("proxy", move || match rewrite {
        None => pump(server, client, weather.to_client),
        Some(rewrite) => {
            let mut answer = Vec::new();
            let _ = (&server).read_to_end(&mut answer);
            let _ = carry(&client, &rewrite(answer), &mut 0, weather.to_client);
            let _ = client.shutdown(Shutdown::Write);
        }
    })
    .unwrap();
}

fn pump(from: TcpStream, to: TcpStream, fault: Fault) {
    let mut bytes = vec![0; 64 << 10];
    let mut done = 0;
    loop {
        let got = (&from).read(&mut bytes).unwrap_or(0);
        if got == 0 {
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
        if !carry(&to, &bytes[..got], &mut done, fault) {
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
    }
}

/// Hands bytes over as far as the fault lets them; false when the connection is to end.
fn carry(to: &TcpStream, bytes: &[u8], done: &mut u64, fault: Fault) -> bool {
    let mut bytes = bytes.to_vec();
    let at = *done;
    *done += bytes.len() as u64;
    let mut goes_on = true;
    match fault {
        Fault::None => {}
        Fault::Delay(by) => yb_env::sleep(by),
        Fault::CutAfter(limit) => {
            goes_on = *done < limit;
            bytes.truncate(limit.saturating_sub(at) as usize);
        }
        Fault::Corrupt(place) if (at..*done).contains(&place) => bytes[(place - at) as usize] ^= 0xff,
        Fault::Corrupt(_) => {}
        Fault::Throttle(rate) => {
            for part in bytes.chunks(4096) {
                yb_env::sleep(Duration::from_secs_f64(part.len() as f64 / rate as f64));
                if (&*to).write_all(part).is_err() {
                    return false;
                }
            }
            return true;
        }
        Fault::Stall(limit) => bytes.truncate(limit.saturating_sub(at) as usize),
    }
    let mut to = to;
    to.write_all(&bytes).is_ok() && goes_on
}

/// A proxy on the handshake port of an engine, and one on its data port, to which the first one's answers lead.
pub struct Between {
    pub handshake: Proxy,
    pub data: Proxy,
    /// What to open instead of the engine.
    pub endpoint: String,
}

impl Between {
    pub fn start(endpoint: &str) -> Self {
        Between::telling(endpoint, |_| {})
    }

    /// As [`Between::start`], and changes what the engine says of itself.
    pub fn telling(endpoint: &str, change: impl Fn(&mut serde_json::Value) + Send + Sync + 'static) -> Self {
        let upstream: SocketAddr = endpoint.parse().unwrap();
        let desc = super::describe(endpoint);
        let port = u16::try_from(desc["tcp_data_port"].as_u64().unwrap()).unwrap();
        let data = Proxy::start(SocketAddr::new(upstream.ip(), port));
        let to = data.address;
        let rewrite = move |answer: Vec<u8>| {
            if answer.get(8) != Some(&1) {
                return answer;
            }
            let Ok(mut desc) = serde_json::from_slice::<serde_json::Value>(&answer[9..]) else { return answer };
            desc["tcp_data_host"] = to.ip().to_string().into();
            desc["tcp_data_port"] = to.port().into();
            change(&mut desc);
            let json = format!("\x01{desc}\n");
            [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat()
        };
        let handshake = Proxy::with(upstream, Some(Arc::new(rewrite)));
        let endpoint = handshake.address.to_string();
        Between { handshake, data, endpoint }
    }
}
