//! A network with bad days: a TCP relay whose weather changes for connections that are open too.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What happens to the bytes of all connections, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Nothing.
    Fair,
    /// Every piece comes later by this much.
    Delay(Duration),
    /// Connections end, new ones are ended at once.
    Cut,
    /// Connections stay, nothing comes; it comes when the weather changes.
    HalfOpen,
    /// So many bytes a second.
    Trickle(u32),
}

/// Forwards connections from one address to another.
pub struct Relay {
    shared: Arc<Shared>,
    address: SocketAddr,
}

struct Shared {
    upstream: SocketAddr,
    weather: Mutex<Weather>,
    open: Mutex<HashMap<u64, [TcpStream; 2]>>,
    accepted: AtomicU64,
    stop: AtomicBool,
}

/// The place of a connection in the list, until both its directions have ended.
struct Entry(Arc<Shared>, u64);

impl Drop for Entry {
    fn drop(&mut self) {
        lock(&self.0.open).remove(&self.1);
    }
}

impl Relay {
    /// Listens at an address (port 0: any) and forwards to another one.
    ///
    /// # Errors
    /// It cannot listen there.
    pub fn start(listen: SocketAddr, upstream: SocketAddr) -> io::Result<Relay> {
        let listener = TcpListener::bind(listen)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream,
            weather: Mutex::new(Weather::Fair),
            open: Mutex::default(),
            accepted: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        yb_env::spawn_thread("relay", move || {
            for client in listener.incoming().map_while(Result::ok) {
                if serving.stop.load(Ordering::SeqCst) {
                    return;
                }
                // A server that is not there ends the connection, as it would without a relay.
                let _ = serving.forward(client);
            }
        })?;
        Ok(Relay { shared, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the weather, for connections that are open too.
    pub fn set(&self, weather: Weather) {
        *lock(&self.shared.weather) = weather;
        if weather == Weather::Cut {
            self.cut();
        }
    }

    /// Ends all connections that are open now.
    pub fn cut(&self) {
        for stream in lock(&self.shared.open).values().flatten() {
            // Fails only if it has ended.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// How many connections were ever made.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.set(Weather::Cut);
        // Wakes the listener; if that fails it has ended.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn forward(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        let number = self.accepted.fetch_add(1, Ordering::SeqCst);
        if *lock(&self.weather) == Weather::Cut {
            return client.shutdown(Shutdown::Both);
        }
        let server = TcpStream::connect(self.upstream)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        lock(&self.open).insert(number, [client.try_clone()?, server.try_clone()?]);
        let entry = Arc::new(Entry(Arc::clone(self), number));
        let (from_client, to_server, other) = (client.try_clone()?, server.try_clone()?, Arc::clone(&entry));
        yb_env::spawn_thread("relay", move || other.pump(&from_client, &to_server))?;
        yb_env::spawn_thread("relay", move || entry.pump(&server, &client))?;
        Ok(())
    }
}

impl Entry {
    fn pump(&self, mut from: &TcpStream, to: &TcpStream) {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let got = from.read(&mut bytes).unwrap_or(0);
            if got == 0 {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            if self.carry(to, &bytes[..got]).is_err() {
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
        }
    }

    fn carry(&self, mut to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        if let Weather::Delay(by) = *lock(&self.0.weather) {
            yb_env::sleep(by);
        }
        while !bytes.is_empty() {
            let part = match *lock(&self.0.weather) {
                Weather::Fair | Weather::Delay(_) => bytes.len(),
                Weather::Cut => return Err(io::ErrorKind::ConnectionReset.into()),
                Weather::HalfOpen => 0,
                Weather::Trickle(rate) => bytes.len().min((rate / 100).max(1) as usize),
            };
            to.write_all(&bytes[..part])?;
            bytes = &bytes[part..];
            if !bytes.is_empty() {
                yb_env::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
