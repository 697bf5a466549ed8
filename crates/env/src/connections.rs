//! Connections whose other end has vanished.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

/// How long a connection is idle before the other end is asked whether it is there.
const ASKED_AFTER: Duration = Duration::from_secs(10);
/// The time between two such questions.
const ASKED_EVERY: Duration = Duration::from_secs(5);
/// How many of them may stay without an answer.
const QUESTIONS: u32 = 4;
/// How long bytes that were sent may stay unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Has the system end a TCP connection whose other end has vanished without a word (power, link, a machine taken away):
/// about 30 s after its last sign of life. What a listener accepts inherits this from it.
///
/// # Errors
/// The system's.
pub fn end_when_vanished(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, ASKED_AFTER)?;
    sockopt::set_tcp_keepintvl(socket, ASKED_EVERY)?;
    sockopt::set_tcp_keepcnt(socket, QUESTIONS)?;
    let unacknowledged = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(socket, unacknowledged)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_is_accepted_inherits_it_from_the_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        end_when_vanished(&listener).unwrap();
        let _caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), ASKED_AFTER);
        assert_eq!(sockopt::tcp_keepintvl(&accepted).unwrap(), ASKED_EVERY);
        assert_eq!(sockopt::tcp_keepcnt(&accepted).unwrap(), QUESTIONS);
        assert_eq!(sockopt::tcp_user_timeout(&accepted).unwrap(), 30_000);
    }
}
